# Loaded by Julia 1.9 and later when both packages are; src/tables.jl does it for older ones.
module DipcTablesExt

import Dipc
import Tables

# Assignments of the file are for the program that runs, not for the one that compiles it.
include("../src/tables_methods.jl")
__init__() = Dipc.TABLES[] = Tables

end
