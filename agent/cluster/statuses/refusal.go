package statuses

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// part is a part of a pod's status.
type part struct {
	// field is a field of the status, of the element of that list by its name or type; "": it is no
	// such list, or the whole of it.
	field, element string
	// inner is a field of the element; "": all of it.
	inner string
}

// String returns the part's path with the element's name in place of its index.
func (p part) String() string {
	out := "status." + p.field
	if p.element != "" {
		out += "[" + p.element + "]"
	}
	if p.inner != "" {
		out += "." + p.inner
	}
	return out
}

// mostParts bounds the parts that are left out of a status one by one.
const mostParts = 64

// refusedParts returns the parts of a status that the API server refuses; none: it does not say which,
// or refuses more than can be left out. The phase is never left out.
func refusedParts(err error, s v1.PodStatus) (out []part) {
	var is *apierrors.StatusError
	if !errors.As(err, &is) || is.ErrStatus.Details == nil {
		return nil
	}
	fields, err := fieldsOf(s)
	if err != nil {
		return nil
	}
	for _, cause := range is.ErrStatus.Details.Causes {
		p, ok := parsePart(cause.Field, fields)
		if !ok || p.field == "phase" || len(out) == mostParts {
			return nil
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// path is that of a field in an error: the field, the index of the element, the element's field.
var path = regexp.MustCompile(`^status\.(\w+)(?:\[(\d+)\](?:\.(\w+))?)?`)

func parsePart(text string, in map[string]any) (p part, ok bool) {
	found := path.FindStringSubmatch(text)
	if found == nil {
		return part{}, false
	}
	p.field = found[1]
	list, _ := in[p.field].([]any)
	if n, err := strconv.Atoi(found[2]); err == nil && n < len(list) {
		if p.element = nameOf(list[n]); p.element != "" {
			p.inner = found[3]
		}
	}
	return p, true
}

// nameOf returns what tells an element of a list from the others; "": nothing does.
func nameOf(element any) string {
	fields, _ := element.(map[string]any)
	for _, key := range []string{"name", "type"} {
		if name, ok := fields[key].(string); ok {
			return name
		}
	}
	return ""
}

func fieldsOf(s v1.PodStatus) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
}

// without returns a status whose parts are as the API server has them.
func without(s, api v1.PodStatus, parts []part) (v1.PodStatus, error) {
	is, err := fieldsOf(s)
	if err != nil {
		return s, err
	}
	there, err := fieldsOf(api)
	if err != nil {
		return s, err
	}
	for _, p := range parts {
		p.restore(is, there)
	}
	var out v1.PodStatus
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(is, &out)
	return out, err
}

// restore makes a part as it is there.
func (p part) restore(is, there map[string]any) {
	if p.element == "" {
		restore(is, there, p.field)
		return
	}
	list, _ := is[p.field].([]any)
	was, _ := there[p.field].([]any)
	n, old := find(list, p.element), find(was, p.element)
	switch {
	case n < 0: // it is not told any more
	case p.inner != "":
		before := map[string]any{}
		if old >= 0 {
			before, _ = was[old].(map[string]any)
		}
		restore(list[n].(map[string]any), before, p.inner)
	case old >= 0:
		list[n] = was[old]
	default:
		is[p.field] = slices.Delete(list, n, n+1)
	}
}

func restore(is, there map[string]any, field string) {
	if was, ok := there[field]; ok {
		is[field] = was
	} else {
		delete(is, field)
	}
}

func find(list []any, name string) int {
	return slices.IndexFunc(list, func(element any) bool { return nameOf(element) == name })
}

// said joins parts for people.
func said(parts []part) string {
	var words []string
	for _, p := range parts {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}
