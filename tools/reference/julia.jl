# The reference of the Julia package, as one page of HTML, out of its docstrings.
#
#   julia --project=bindings/julia tools/reference/julia.jl build/docs/julia/index.html
import Dipc
using Markdown

const DOCUMENTED = Base.Docs.meta(Dipc)

# The docstrings of a name, one for each kind of arguments, in the order of the source.
function texts(binding)
    all = DOCUMENTED[binding]
    return [join(all.docs[signature].text) for signature in all.order]
end

# The API is what a docstring shows with `Dipc.` before it, and methods of functions of Base.
ispublic(binding) =
    binding.mod !== Dipc || binding.var in (:Dipc, :DipcError) ||
    any(text -> startswith(lstrip(text), "Dipc.$(binding.var)"), texts(binding))

title(binding) = binding.var === :Dipc ? "Dipc" : "$(nameof(binding.mod)).$(binding.var)"

# A link in a docstring is [`Dipc.get`](@ref).
show_text(io, text) = println(io, Markdown.html(Markdown.parse(
    replace(text, r"\[`Dipc\.([^`(]+?)(\([^`]*\))?`\]\(@ref\)" => s"[`Dipc.\1`](#Dipc.\1)"))))

open(ARGS[1], "w") do io
    names = sort!(filter(ispublic, collect(keys(DOCUMENTED))); by = title)
    isempty(names) && error("no name of the package has a docstring")
    println(io, """
        <!DOCTYPE html>
        <html lang="en">
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>libdipc: Julia</title>
        <link rel="stylesheet" href="../reference.css">
        <p><a href="../index.html">libdipc</a> · <a href="../guide/julia.html">Guide</a></p>
        <h1>Dipc</h1>""")
    itself = Base.Docs.Binding(Dipc, :Dipc)
    foreach(text -> show_text(io, text), texts(itself))
    println(io, "<h2>Index</h2>\n<ul>")
    filter!(!=(itself), names)
    for name in names
        println(io, "<li><a href=\"#", title(name), "\">", title(name), "</a></li>")
    end
    println(io, "</ul>")
    for name in names
        println(io, "<h3 id=\"", title(name), "\">", title(name), "</h3>")
        foreach(text -> show_text(io, text), texts(name))
    end
end
