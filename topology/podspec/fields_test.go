package podspec

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// root is the directory with docs/ and the tests' folders.
const root = "../.."

// row is the page's entry for a field.
type row struct{ state, text, tests string }

// States of a field.
const (
	honoured = "honoured"
	see      = "see" // in the section of the field's type
	waits    = "waits"
	refused  = "refused"
	noEffect = "no effect yet"
	nothing  = "nothing to do"
	others   = "others'"
)

var states = []string{honoured, see, waits, refused, noEffect, nothing, others}

// readPage reads the sections, each with the rows of one API type, and reports errors of form.
func readPage(t *testing.T) map[string]map[string]row {
	t.Helper()
	file, err := os.Open(filepath.Join(root, "docs/pod-fields.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	heading := regexp.MustCompile("^## .*`([A-Za-z]+)`$")
	entry := regexp.MustCompile("^\\| `([A-Za-z]+)` \\| ([^|]*) \\| ([^|]*) \\|$")
	sections, in, tests := map[string]map[string]row{}, "", readTests(t)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if m := heading.FindStringSubmatch(line); m != nil {
			in = m[1]
			if sections[in] != nil {
				t.Errorf("%s has two sections: make one of them", in)
			}
			sections[in] = map[string]row{}
			continue
		}
		m := entry.FindStringSubmatch(line)
		switch {
		case m == nil && strings.HasPrefix(line, "| `"):
			t.Errorf("not a row of three columns, which is | `field` | state | how | with a space on both "+
				"sides of what is in a column: %s", line)
		case m == nil:
		case in == "":
			t.Errorf("in no section: %s", line)
		default:
			if _, twice := sections[in][m[1]]; twice {
				t.Errorf("%s.%s has two rows: remove one", in, m[1])
			}
			sections[in][m[1]] = row{m[2], strings.TrimSpace(m[3]), tests[in+"."+m[1]]}
			delete(tests, in+"."+m[1])
		}
	}
	for at := range tests {
		t.Errorf("%s names tests of %s, which the page lacks: remove the line", testsFile, at)
	}
	return sections
}

// testsFile names the tests of each field, as "PodSpec.dnsPolicy: cri: TestDNS; test/cluster: TestParity".
const testsFile = "testdata/field-tests.txt"

func readTests(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if at, tests, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
			out[at] = tests
		}
	}
	return out
}

// fieldsOf returns the fields of a type by name, including inlined ones.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			// Ephemeral containers have the fields of containers, and share their section.
			if f.Type != reflect.TypeFor[v1.EphemeralContainerCommon]() {
				maps.Copy(out, fieldsOf(f.Type))
			}
			continue
		}
		of := f.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		out[name] = of
	}
	return out
}

// docs/pod-fields.md has exactly the fields that a pod can have, each with its state and tests.
func TestEveryFieldIsDocumented(t *testing.T) {
	sections, reached := readPage(t), map[string]bool{}
	var look func(reflect.Type)
	look = func(of reflect.Type) {
		if reached[of.Name()] {
			return
		}
		reached[of.Name()] = true
		fields := fieldsOf(of)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			is, ok := sections[of.Name()][name]
			at := of.Name() + "." + name
			if !ok {
				t.Errorf("docs/pod-fields.md lacks %s: add a row to the section of %s that says what "+
					"becomes of the field, and name its tests in "+testsFile, at, of.Name())
				continue
			}
			for _, wrong := range is.wrong(fields[name]) {
				t.Errorf("%s: %s", at, wrong)
			}
			if is.state == see {
				look(fields[name])
			}
		}
		for name := range sections[of.Name()] {
			if _, is := fields[name]; !is {
				t.Errorf("docs/pod-fields.md has %s.%s, which is no field of the API: correct its name, "+
					"or remove the row", of.Name(), name)
			}
		}
	}
	look(reflect.TypeFor[v1.PodSpec]())
	for name := range fieldsOf(reflect.TypeFor[v1.EphemeralContainerCommon]()) {
		if _, ok := sections["Container"][name]; !ok {
			t.Errorf("ephemeral containers have %s, which containers have not: have it stand in the "+
				"section of EphemeralContainer", name)
		}
	}
	for name := range sections {
		if !reached[name] {
			t.Errorf("docs/pod-fields.md has a section of %s, which no row leads to: have the row of a "+
				"field of that type say %q, or remove the section", name, see)
		}
	}
}

// wrong returns what is wrong with the row of a field of that type.
func (r row) wrong(of reflect.Type) (out []string) {
	const noTest = "no test is named in " + testsFile + ": write the folder and the name of one, as " +
		"\"cri: TestDNS\""
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	compound := of.Kind() == reflect.Struct && of.PkgPath() == "k8s.io/api/core/v1"
	quoted := strings.Count(r.text, "`") >= 2
	switch r.state {
	case honoured:
		// The scheduler's own code reads tolerations and node selectors.
		add(compound && of.Name() != "Toleration" && of.Name() != "NodeSelector",
			"a %s has fields of its own: say %q here, and give them a section", of.Name(), see)
		add(r.tests == "", noTest)
	case see:
		add(!compound, "a %s has no fields of its own: say here what becomes of it", of)
		add(!strings.Contains(r.text, "`"+of.Name()+"`"), "it does not name its type: write `%s`",
			of.Name())
	case waits, refused:
		add(!quoted, "it does not say with which words: quote them")
		add(r.tests == "", noTest)
	case noEffect:
		add(r.text == "", "it does not say what follows")
		add(r.tests == "", noTest)
	case nothing, others:
		add(r.text == "", "it does not say why")
	default:
		add(true, "%q is not what can become of a field: it is one of %q", r.state, states)
	}
	for _, test := range strings.FieldsFunc(r.tests, func(c rune) bool { return c == ';' }) {
		folder, name, ok := strings.Cut(strings.TrimSpace(test), ": ")
		add(!ok || !hasTest(folder, name), "there is no test %q: tests are named as \"cri: TestDNS\", "+
			"with their folder, and \"; \" between two", strings.TrimSpace(test))
	}
	return out
}

// hasTest reports whether a folder has a test of that name.
func hasTest(folder, name string) bool {
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}

// The fields without effect on the page are those that the event FieldsWithoutEffect names.
func TestNoEffectIsReported(t *testing.T) {
	for of, rows := range readPage(t) {
		for name, is := range rows {
			if reported := isReported(of, name); reported != (is.state == noEffect) {
				t.Errorf("%s.%s: the page says %q, and the event FieldsWithoutEffect names it: %v; "+
					"correct the page or WithoutEffect", of, name, is.state, reported)
			}
		}
	}
}

// toldOf reports whether the event names the field for a pod in which every field is set, on a node
// with every gate.
func isReported(of, name string) bool {
	pod := &v1.Pod{}
	fill(reflect.ValueOf(&pod.Spec).Elem(), of, name)
	for _, path := range WithoutEffect(pod, func(string) bool { return true }) {
		if strings.HasSuffix(path, "."+name) ||
			strings.HasPrefix(path, "spec."+name+"[") && strings.Count(path, ".") == 1 {
			return true
		}
	}
	return false
}

// fill gives every struct and list in a value a zero element, and sets one field of one type.
func fill(v reflect.Value, of, name string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), of, name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), of, name)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			is, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case !f.IsExported():
			case v.Type().Name() == of && is == name:
				fill(v.Field(i), "", "")
			case leads(f.Type, of):
				fill(v.Field(i), of, name)
			}
		}
	}
}

// leads reports whether a value of the type contains the type of that name.
func leads(t reflect.Type, of string) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return leads(t.Elem(), of)
	case reflect.Struct:
		if t.Name() == of {
			return true
		}
		for i := range t.NumField() {
			if t.PkgPath() == "k8s.io/api/core/v1" && leads(t.Field(i).Type, of) {
				return true
			}
		}
	}
	return false
}
