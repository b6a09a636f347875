# Julia 1.9 and later loads this when both packages are loaded; src/tables.jl does it for older
# versions.
module DipcTablesExt

import Dipc
import Tables

# The assignments must happen in the program that runs, not in the process that precompiles this
# file.
include("../src/tables_methods.jl")
__init__() = Dipc.TABLES[] = Tables

end
