package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/quantity"
)

// fieldAt returns the field of an addressable struct at a path of JSON names. The path must exist:
// only our own table calls it, and a test covers all its rows.
func fieldAt(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		for i := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if tag == name {
				v = v.Field(i)
				break
			}
		}
	}
	return v
}

// bind registers the flag of one row for a field of any type that the configuration uses.
func bind(fs *pflag.FlagSet, row fieldFlag, field reflect.Value) {
	if field.Kind() == reflect.Pointer {
		field = field.Elem()
	}
	name, usage := row.Flag, row.Usage
	switch p := field.Addr().Interface().(type) {
	case *bool:
		fs.BoolVar(p, name, *p, usage)
	case *int32:
		fs.Int32Var(p, name, *p, usage)
	case *int64:
		fs.Int64Var(p, name, *p, usage)
	case *metav1.Duration:
		fs.DurationVar(&p.Duration, name, p.Duration, usage)
	case *[]string:
		fs.StringSliceVar(p, name, *p, usage)
	case *map[string]string:
		if name == "eviction-hard" || name == "eviction-soft" {
			fs.Var(cliflag.NewLangleSeparatedMapStringString(p), name, usage)
		} else {
			fs.Var(cliflag.NewMapStringString(p), name, usage)
		}
	case *map[string]bool:
		fs.Var(cliflag.NewMapStringBool(p), name, usage)
	case *map[string][]string:
		fs.Var(cliflag.NewColonSeparatedMultimapStringString(p), name, usage)
	case *[]v1.Taint:
		fs.Var(taintsValue(p), name, usage)
	case *[]kubeletv1beta1.MemoryReservation:
		fs.Var(memoryValue(p), name, usage)
	default: // string, and types derived from it
		fs.Var(stringValue{field}, name, usage)
	}
}

// stringValue is a flag for a field whose type is derived from string.
type stringValue struct{ field reflect.Value }

// Set implements pflag.Value.
func (s stringValue) Set(value string) error {
	s.field.SetString(value)
	return nil
}

// String implements pflag.Value.
func (s stringValue) String() string {
	if !s.field.IsValid() {
		return ""
	}
	return s.field.String()
}

// Type implements pflag.Value.
func (stringValue) Type() string { return "string" }

// listValue is a flag for a list of T; its first use replaces the list, later uses append.
type listValue[T any] struct {
	list   *[]T
	syntax string // of a value, for --help
	sep    string // between entries
	parse  func(string) (T, error)
	format func(T) string
	used   bool
}

// Set implements pflag.Value.
func (l *listValue[T]) Set(value string) error {
	var list []T
	for word := range strings.SplitSeq(value, l.sep) {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		entry, err := l.parse(word)
		if err != nil {
			return err
		}
		list = append(list, entry)
	}
	if l.used {
		list = append(*l.list, list...)
	}
	*l.list, l.used = list, true
	return nil
}

// String implements pflag.Value.
func (l *listValue[T]) String() string {
	if l.list == nil {
		return ""
	}
	var words []string
	for _, entry := range *l.list {
		words = append(words, l.format(entry))
	}
	return strings.Join(words, l.sep)
}

// Type implements pflag.Value.
func (l *listValue[T]) Type() string { return l.syntax }

func taintsValue(taints *[]v1.Taint) pflag.Value {
	return &listValue[v1.Taint]{
		list: taints, syntax: "key=value:Effect", sep: ",", parse: parseTaint,
		format: func(t v1.Taint) string {
			return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
		},
	}
}

func parseTaint(text string) (v1.Taint, error) {
	head, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(head, "=")
	if key == "" || effect == "" {
		return v1.Taint{}, fmt.Errorf("taint %q: want key=value:Effect", text)
	}
	return v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)}, nil
}

// memoryValue parses "node:type=quantity[,type=quantity][;node:...]".
func memoryValue(reserved *[]kubeletv1beta1.MemoryReservation) pflag.Value {
	return &listValue[kubeletv1beta1.MemoryReservation]{
		list: reserved, syntax: "node:type=quantity", sep: ";", parse: parseReservation,
		format: func(r kubeletv1beta1.MemoryReservation) string {
			var items []string
			for name, q := range r.Limits {
				items = append(items, fmt.Sprintf("%s=%s", name, q.String()))
			}
			return fmt.Sprintf("%d:%s", r.NumaNode, strings.Join(items, ","))
		},
	}
}

func parseReservation(section string) (kubeletv1beta1.MemoryReservation, error) {
	r := kubeletv1beta1.MemoryReservation{Limits: v1.ResourceList{}}
	id, limits, ok := strings.Cut(section, ":")
	node, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
	if !ok || err != nil || node < 0 {
		return r, fmt.Errorf("reserved memory %q: want node:type=quantity[,type=quantity]", section)
	}
	r.NumaNode = int32(node)
	for item := range strings.SplitSeq(limits, ",") {
		name, amount, _ := strings.Cut(strings.TrimSpace(item), "=")
		q, err := quantity.Parse(amount)
		if err != nil || name == "" {
			return r, fmt.Errorf("reserved memory %q: want type=quantity, such as memory=1Gi", item)
		}
		if _, twice := r.Limits[v1.ResourceName(name)]; twice {
			return r, fmt.Errorf("reserved memory %q: %s is given twice", section, name)
		}
		r.Limits[v1.ResourceName(name)] = q
	}
	return r, nil
}
