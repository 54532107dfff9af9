package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is an alarm: a type with more methods usually holds a second thing, which deserves a
// type of its own. It is above the 20 that CONTRIBUTING.md names, so that no type is cut to measure.
const mostMethods = 25

// TestMethodsOfATypeAreFew counts the methods of every type outside tests. Those that answer gRPC calls
// and those of generated code do not count: an API gives their number.
func TestMethodsOfATypeAreFew(t *testing.T) {
	methods := map[string][]string{}
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == ".git"):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go", strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, ".pb.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && !answersCalls(f.Type) {
				of := filepath.Dir(name) + "." + baseName(f.Recv.List[0].Type)
				methods[of] = append(methods[of], f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(methods) < 100 {
		t.Fatalf("only %d types with methods were found", len(methods))
	}
	for of, names := range methods {
		if len(names) > mostMethods {
			t.Errorf("%s has %d methods, more than %d: %s", of, len(names), mostMethods, strings.Join(names, " "))
		}
	}
}

// answersCalls says whether a method takes a gRPC service's request or one of its streams.
func answersCalls(f *ast.FuncType) bool {
	for _, param := range f.Params.List {
		name := baseName(param.Type)
		if strings.HasSuffix(name, "Request") && f.Results != nil && len(f.Results.List) == 2 ||
			strings.HasSuffix(name, "Server") && strings.Contains(name, "_") || name == "ServerStreamingServer" {
			return true
		}
	}
	return false
}

// baseName returns the name of a type without pointer, package and type parameters.
func baseName(expr ast.Expr) string {
	switch t := expr.(type) {
	case *ast.StarExpr:
		return baseName(t.X)
	case *ast.IndexExpr:
		return baseName(t.X)
	case *ast.IndexListExpr:
		return baseName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return ""
}
