// Package strictyaml reads one YAML or JSON document written by a person and reports, with the path
// of every field, what does not fit the Go type it is meant for.
//
// encoding/json stops at the first problem, loses the path of values with their own decoder
// (durations, quantities) and drops unknown fields. Here the document is first compared with the
// type and all findings are collected; the caller decodes only if it accepts them.
package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kjson "k8s.io/apimachinery/pkg/util/json"
	strictjson "sigs.k8s.io/json"

	"github.com/numalet/numalet/internal/oneline"
)

// ErrEmpty says that the file holds nothing but blanks and comments.
var ErrEmpty = errors.New("is empty")

// Document is one object, read from YAML or JSON.
type Document struct {
	// JSON is the document without duplicate keys; the last one counts.
	JSON []byte
	// Duplicates names the duplicate keys, in one line; empty if there are none.
	Duplicates string

	root map[string]any
}

// Parse reads the only document in data. The error is one line and begins with a verb ("is not
// YAML: ..."), so that it reads well after the name of the file.
func Parse(data []byte) (Document, error) {
	data, err := only(data)
	if err != nil {
		return Document{}, err
	}
	d, err := toJSON(data)
	if err != nil {
		return Document{}, err
	}
	if n := values(d.JSON); n > maxValues {
		return Document{}, fmt.Errorf("holds %d values; at most %d are read", n, maxValues)
	}
	dec := json.NewDecoder(bytes.NewReader(d.JSON))
	dec.UseNumber()
	var root any
	if err := dec.Decode(&root); err != nil {
		return Document{}, fmt.Errorf("is not YAML or JSON: %s", OneLine(err.Error()))
	}
	switch root := root.(type) {
	case nil:
		return Document{}, ErrEmpty
	case map[string]any:
		d.root = root
		return d, nil
	default:
		return Document{}, fmt.Errorf("holds %s; want an object with apiVersion and kind",
			found(root))
	}
}

const (
	// maxYAML bounds YAML in bytes, to the size of an object in etcd. Reading YAML takes ten times
	// the memory and time of JSON.
	maxYAML = 3 << 19
	// maxValues bounds the values of a document, nested ones included.
	maxValues = 200_000
)

// toJSON returns the document without its root.
func toJSON(data []byte) (d Document, err error) {
	switch valid := json.Valid(data); {
	case valid && values(data) > maxValues:
		return Document{JSON: data}, nil // Parse refuses it
	case valid:
		return jsonDocument(data)
	case len(data) > maxYAML:
		return d, fmt.Errorf("is no valid JSON, and YAML of more than %d KiB is not read",
			maxYAML>>10)
	}
	if d.JSON, err = ToJSON(data, true); err == nil {
		return d, nil
	}
	if errors.Is(err, errExpanded) || errors.Is(err, errCycle) {
		return d, fmt.Errorf("is not read: %w", err)
	}
	d.Duplicates = yamlMessage(err)
	if d.JSON, err = ToJSON(data, false); err != nil {
		return d, fmt.Errorf("is not YAML or JSON: %s", yamlMessage(err))
	}
	return d, nil
}

// jsonDocument finds duplicate keys.
func jsonDocument(data []byte) (d Document, err error) {
	var root any
	twice, err := strictjson.UnmarshalStrict(data, &root, strictjson.DisallowDuplicateFields)
	if err != nil {
		return d, fmt.Errorf("is not YAML or JSON: %s", OneLine(err.Error()))
	}
	d.JSON = data
	if len(twice) == 0 {
		return d, nil
	}
	var all Messages
	for _, err := range twice {
		all.add(err.Error)
	}
	d.Duplicates = OneLine(all.String())
	d.JSON, err = json.Marshal(root)
	return d, err
}

// values estimates the number of values in valid JSON: each except the first of an object or list
// follows a comma.
func values(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}

// Kind returns the document's apiVersion and kind, empty if they are missing or no strings.
func (d Document) Kind() (apiVersion, kind string) {
	apiVersion, _ = d.root["apiVersion"].(string)
	kind, _ = d.root["kind"].(string)
	return apiVersion, kind
}

// Root returns the object for reading; numbers are json.Number. Do not change it.
func (d Document) Root() map[string]any { return d.root }

// Decode fills into. It matches field names exactly and drops unknown ones: see Check.
func (d Document) Decode(into any) error {
	if err := kjson.Unmarshal(d.JSON, into); err != nil {
		return errors.New(OneLine(err.Error()))
	}
	return nil
}

// Strict decodes a document that has only fields of T, each once. The error is one line.
func Strict[T any](d Document) (into T, err error) {
	found := Check[T](d)
	for _, wrong := range []string{d.Duplicates, found.Unknown.String(), found.Wrong.String()} {
		if wrong != "" {
			return into, errors.New(wrong)
		}
	}
	err = d.Decode(&into)
	return into, err
}

// Unmarshal fills into from YAML or JSON without a list of findings: the error names the first
// field that is unknown, duplicate or of the wrong type.
func Unmarshal(data []byte, into any) error {
	text, err := ToJSON(data, true)
	if err != nil {
		return fmt.Errorf("not YAML: %w", err)
	}
	return UnmarshalJSON(text, into)
}

// UnmarshalJSON is Unmarshal for JSON only.
func UnmarshalJSON(data []byte, into any) error {
	strict, err := strictjson.UnmarshalStrict(data, into)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	return err
}

// Split cuts a YAML stream into its documents, without empty ones. Line numbers start anew in each.
func Split(data []byte) ([][]byte, error) {
	var out [][]byte
	for _, d := range documents(data) {
		out = append(out, data[d.first:d.end])
	}
	if len(out) == 0 {
		return nil, ErrEmpty
	}
	return out, nil
}

// only returns the only document of a YAML stream, at its own line numbers.
func only(data []byte) ([]byte, error) {
	switch all := documents(data); len(all) {
	case 0:
		return nil, ErrEmpty
	case 1:
		return all[0].at(data), nil
	default:
		return nil, fmt.Errorf("holds %d documents; put each in a file of its own", len(all))
	}
}

// span is the range of a document.
type span struct{ first, end int }

// at returns the document after as many blank lines as precede it.
func (s span) at(data []byte) []byte {
	if s.first == 0 {
		return data[:s.end]
	}
	blank := bytes.Repeat([]byte{'\n'}, bytes.Count(data[:s.first], []byte{'\n'}))
	return append(blank, data[s.first:s.end]...)
}

// documents lists the documents that are not empty.
func documents(data []byte) []span {
	var out []span
	start, content := 0, false // of the current document
	finish := func(at int) {
		if content {
			out = append(out, span{start, at})
		}
		start, content = at, false
	}
	for at := 0; at < len(data); {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		line := bytes.TrimSpace(data[at:next])
		if rest, ok := separator(data[at:next]); ok {
			finish(at)
			line = rest
		}
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && string(line) != "..." {
			content = true
		}
		at = next
	}
	finish(len(data))
	return out
}

// separator reports whether the line begins a document, and returns the rest of the line.
func separator(line []byte) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(line, []byte("---"))
	if !ok || len(rest) > 0 && !bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])) {
		return nil, false
	}
	return bytes.TrimSpace(rest), true
}

// yamlMessage returns the parser's message in one line, without its prefixes.
func yamlMessage(err error) string {
	s := OneLine(err.Error())
	for _, prefix := range []string{
		"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: ",
	} {
		s = strings.TrimPrefix(s, prefix)
	}
	return s
}

// longest bounds a log line in bytes.
const longest = 400

// OneLine folds line breaks, runs of blanks and terminal control characters, and cuts the text to a
// log line.
func OneLine(s string) string {
	return oneline.Cut(s, longest)
}
