// The reference of the Go package, as one page of HTML, out of its comments.
//
//	go run tools/reference/go.go bindings/go build/docs/go/index.html
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"html"
	"log"
	"os"
	"path/filepath"
	"strings"
)

// Comments link to the package by its path.
const path = "github.com/libdipc/libdipc/bindings/go"

type page struct {
	bytes.Buffer
	files   *token.FileSet
	pkg     *doc.Package
	printer *comment.Printer
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go run tools/reference/go.go PACKAGE PAGE")
	}
	p := &page{files: token.NewFileSet()}
	names, err := filepath.Glob(filepath.Join(os.Args[1], "*.go"))
	if err != nil {
		log.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") && filepath.Base(name) != "example_test.go" {
			continue
		}
		file, err := parser.ParseFile(p.files, name, nil, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, file)
	}
	if p.pkg, err = doc.NewFromFiles(p.files, files, path); err != nil {
		log.Fatal(err)
	}
	p.printer = p.pkg.Printer()
	p.printer.HeadingLevel = 2
	p.printer.DocLinkURL = link
	p.write()
	if err := os.WriteFile(os.Args[2], p.Bytes(), 0o666); err != nil {
		log.Fatal(err)
	}
}

// link leads to this page, or to that of another package.
func link(target *comment.DocLink) string {
	name := target.Name
	if target.Recv != "" {
		name = target.Recv + "." + name
	}
	if target.ImportPath == "" {
		return "#" + name
	}
	return "https://pkg.go.dev/" + target.ImportPath + "#" + name
}

func (p *page) write() {
	p.WriteString(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>libdipc: Go</title>
<link rel="stylesheet" href="../reference.css">
<p><a href="../index.html">libdipc</a> · <a href="../guide/go.html">Guide</a></p>
<h1>package dipc</h1>
`)
	fmt.Fprintf(p, "<pre>import dipc %q</pre>\n", path)
	p.comment(p.pkg.Doc)
	p.examples(p.pkg.Examples)
	p.WriteString("<h2 id=\"index\">Index</h2>\n<ul>\n")
	for _, f := range p.pkg.Funcs {
		p.entry(f.Name)
	}
	for _, t := range p.pkg.Types {
		p.entry(t.Name)
		p.WriteString("<ul>\n")
		for _, f := range append(t.Funcs, t.Methods...) {
			p.entry(name(f))
		}
		p.WriteString("</ul>\n")
	}
	p.WriteString("</ul>\n")
	p.values("Constants", p.pkg.Consts)
	p.values("Variables", p.pkg.Vars)
	p.WriteString("<h2 id=\"functions\">Functions</h2>\n")
	p.functions(p.pkg.Funcs)
	p.WriteString("<h2 id=\"types\">Types</h2>\n")
	for _, t := range p.pkg.Types {
		fmt.Fprintf(p, "<h3 id=%q>type %s</h3>\n", t.Name, t.Name)
		p.fields(t)
		p.code(t.Decl)
		p.comment(t.Doc)
		p.examples(t.Examples)
		for _, values := range [][]*doc.Value{t.Consts, t.Vars} {
			for _, value := range values {
				p.value(value)
			}
		}
		p.functions(t.Funcs)
		p.functions(t.Methods)
	}
}

func name(f *doc.Func) string {
	if f.Recv == "" {
		return f.Name
	}
	return strings.TrimPrefix(f.Recv, "*") + "." + f.Name
}

func (p *page) entry(name string) {
	fmt.Fprintf(p, "<li><a href=\"#%s\">%s</a></li>\n", name, name)
}

func (p *page) comment(text string) {
	p.Write(p.printer.HTML(p.pkg.Parser().Parse(text)))
}

func (p *page) code(node any) {
	var source bytes.Buffer
	if err := format.Node(&source, p.files, node); err != nil {
		log.Fatal(err)
	}
	text := source.String()
	// An example is a function's body.
	if _, ok := node.(*ast.BlockStmt); ok {
		text = strings.ReplaceAll(text[1:len(text)-1], "\n\t", "\n")
	}
	fmt.Fprintf(p, "<pre>%s</pre>\n", html.EscapeString(strings.TrimSpace(text)))
}

// fields makes what links to fields of a struct and to methods of an interface lead here.
func (p *page) fields(t *doc.Type) {
	ast.Inspect(t.Decl, func(node ast.Node) bool {
		field, ok := node.(*ast.Field)
		if !ok {
			return true
		}
		for _, name := range field.Names {
			fmt.Fprintf(p, "<a id=\"%s.%s\"></a>", t.Name, name)
		}
		// Its parameters are no fields.
		return false
	})
}

func (p *page) values(title string, values []*doc.Value) {
	if len(values) == 0 {
		return
	}
	fmt.Fprintf(p, "<h2 id=%q>%s</h2>\n", strings.ToLower(title), title)
	for _, value := range values {
		p.value(value)
	}
}

func (p *page) value(value *doc.Value) {
	for _, name := range value.Names {
		fmt.Fprintf(p, "<a id=%q></a>", name)
	}
	p.code(value.Decl)
	p.comment(value.Doc)
}

func (p *page) functions(functions []*doc.Func) {
	for _, f := range functions {
		fmt.Fprintf(p, "<h4 id=%q>func %s</h4>\n", name(f), name(f))
		p.code(f.Decl)
		p.comment(f.Doc)
		p.examples(f.Examples)
	}
}

func (p *page) examples(examples []*doc.Example) {
	for _, example := range examples {
		p.WriteString("<p>Example:</p>\n")
		p.code(example.Code)
	}
}
