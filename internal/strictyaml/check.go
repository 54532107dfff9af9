package strictyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/internal/quantity"
)

// Findings is the outcome of Check, each list ordered by path.
type Findings struct {
	// Given lists the paths of the fields that the document sets
	// ("authentication.webhook.enabled"). Lists and maps are named as a whole. A null counts as not
	// given.
	Given []string
	// Unknown holds messages about fields that the type does not have.
	Unknown Messages
	// Wrong holds messages about values that do not fit their field.
	Wrong Messages
}

// Messages holds the first messages of its kind, as many as a user reads at once.
type Messages struct {
	First []string
	More  int // the number of further ones
}

// MaxMessages bounds Messages.First.
const MaxMessages = 10

// add adds a message; it only calls message if there is room.
func (m *Messages) add(message func() string) {
	if len(m.First) == MaxMessages {
		m.More++
		return
	}
	m.First = append(m.First, message())
}

// String joins messages to one line, as many as fit.
func (m Messages) String() string {
	text, more := "", m.More
	for i, message := range m.First {
		if i > 0 && len(text)+len(message) > longest-len("; and 1000000 more") {
			more += len(m.First) - i
			break
		}
		if i > 0 {
			text += "; "
		}
		text += message
	}
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Check compares the document with type T, a struct, by its json tags.
func Check[T any](d Document) Findings {
	w := walk{fields: map[reflect.Type]map[string]reflect.Type{}}
	w.object("", d.root, reflect.TypeFor[T](), true)
	return w.Findings
}

type walk struct {
	Findings
	fields map[reflect.Type]map[string]reflect.Type
}

// fieldsOf returns jsonFields, computed once for each type.
func (w *walk) fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields, known := w.fields[t]
	if !known {
		fields = map[string]reflect.Type{}
		jsonFields(t, fields)
		w.fields[t] = fields
	}
	return fields
}

func (w *walk) wrong(path, want string, v any) {
	w.Wrong.add(func() string {
		return fmt.Sprintf("%s: want %s, found %s", path, want, found(v))
	})
}

// value checks v at path against t. record: path counts as given.
func (w *walk) value(path string, v any, t reflect.Type, record bool) {
	if v == nil {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	own := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	if t.Kind() == reflect.Struct && !own {
		w.object(path, v, t, record)
		return
	}
	if record {
		w.Given = append(w.Given, path)
	}
	switch {
	case own:
		if !decodes(v, t) {
			w.wrong(path, wanted(t), v)
		}
	case t.Kind() == reflect.Map:
		w.mapping(path, v, t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		list, ok := v.([]any)
		if !ok {
			w.wrong(path, "a list", v)
		}
		for i, e := range list {
			w.value(path+"["+strconv.Itoa(i)+"]", e, t.Elem(), false)
		}
	case !fits(v, t):
		w.wrong(path, wanted(t), v)
	}
}

// decodes reports whether the decoder of type t accepts v. A quantity is checked first, because
// parsing it can be expensive.
func decodes(v any, t reflect.Type) bool {
	raw, err := json.Marshal(v)
	if err == nil && t == reflect.TypeFor[resource.Quantity]() {
		err = quantity.Check(strings.Trim(string(raw), `"`))
	}
	return err == nil && json.Unmarshal(raw, reflect.New(t).Interface()) == nil
}

func (w *walk) mapping(path string, v any, t reflect.Type) {
	m, ok := v.(map[string]any)
	if !ok {
		w.wrong(path, "a mapping", v)
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		w.value(join(path, key), m[key], t.Elem(), false)
	}
}

func (w *walk) object(path string, v any, t reflect.Type, record bool) {
	m, ok := v.(map[string]any)
	if !ok {
		w.wrong(path, "an object", v)
		return
	}
	fields := w.fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if ft, ok := fields[key]; ok {
			w.value(join(path, key), m[key], ft, record)
			continue
		}
		w.Unknown.add(func() string {
			hint := "remove it or correct its name"
			if near := nearest(key, fields); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			return fmt.Sprintf("%s: unknown field; %s", join(path, key), hint)
		})
	}
}

// jsonFields lists the json names of a struct with the type of each, embedded structs included.
func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case name == "" && f.Anonymous:
			jsonFields(f.Type, into)
		case name == "":
			into[f.Name] = f.Type
		default:
			into[name] = f.Type
		}
	}
}

// fits reports whether v can be stored in the scalar type t.
func fits(v any, t reflect.Type) bool {
	n, number := v.(json.Number)
	var err error
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Bool:
		_, ok := v.(bool)
		return ok
	case reflect.String, reflect.Slice: // bytes, in base64
		_, ok := v.(string)
		return ok
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err = strconv.ParseInt(n.String(), 10, t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		_, err = strconv.ParseUint(n.String(), 10, t.Bits())
	case reflect.Float32, reflect.Float64:
		_, err = strconv.ParseFloat(n.String(), t.Bits())
	default:
		return false
	}
	return number && err == nil
}

// wanted describes a value of type t in words.
func wanted(t reflect.Type) string {
	switch t.Name() {
	case "Duration", "TimeOrMetaDuration":
		return `a duration such as "10s" or "2m"`
	case "Quantity", "QuantityValue":
		return `a quantity such as "500m" or "2Gi"`
	case "IntOrString":
		return "a number or a string"
	case "Time", "MicroTime":
		return "a time such as 2006-01-02T15:04:05Z"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a base64 string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		return "a whole number of " + strconv.Itoa(t.Bits()) + " bits"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		return "a whole number that is not negative"
	}
	return "another type"
}

// found describes a value of the document in one line.
func found(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) > 40 {
			v = strings.ToValidUTF8(v[:40], "") + "..."
		}
		return "the string " + strconv.Quote(v)
	case json.Number:
		return "the number " + v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return "nothing"
	}
}

// nearest returns the field that key may be a misspelling of: equal except for case, or up to two
// typing errors away. Empty if there is none.
func nearest(key string, fields map[string]reflect.Type) string {
	best, distance := "", 3
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if strings.EqualFold(name, key) {
			return name
		}
		if len(key) >= len(name)+distance { // key may have megabytes
			continue
		}
		if d := levenshtein.ComputeDistance(name, key); d < distance && d < len(name)/2 {
			best, distance = name, d
		}
	}
	return best
}

// join appends a key to a path; odd keys, such as those with dots, are put in brackets.
func join(path, key string) string {
	odd := key == "" || len(key) > 80 || bytes.ContainsFunc([]byte(key), func(r rune) bool {
		return r <= ' ' || r == '.' || r == '[' || r == '"' || r > '~'
	})
	switch {
	case odd && len(key) > 80:
		return path + "[" + strconv.Quote(strings.ToValidUTF8(key[:80], "")+"...") + "]"
	case odd:
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}
