package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// fieldAt is the field of an addressable struct at a path of json names. The path must exist:
// rows of our own table are the only callers, and a test walks them all.
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

// bind registers the flag of one row for a field of any type that the configuration has.
func bind(fs *pflag.FlagSet, row fieldFlag, field reflect.Value) {
	if field.Kind() == reflect.Pointer {
		field = field.Elem()
	}
	name, usage := row.flag, row.usage
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
		fs.Var(&taintsValue{taints: p}, name, usage)
	case *[]kubeletv1beta1.MemoryReservation:
		fs.Var(&memoryValue{reserved: p}, name, usage)
	default: // string and the types made of it
		fs.Var(stringValue{field}, name, usage)
	}
}

// stringValue is a flag for a field whose type is made of string.
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

// taintsValue reads "key=value:Effect,..."; the first use replaces, more are appended.
type taintsValue struct {
	taints *[]v1.Taint
	used   bool
}

// Set implements pflag.Value.
func (t *taintsValue) Set(value string) error {
	var taints []v1.Taint
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		head, effect, _ := strings.Cut(item, ":")
		key, val, _ := strings.Cut(head, "=")
		if key == "" || effect == "" {
			return fmt.Errorf("taint %q: want key=value:Effect", item)
		}
		taints = append(taints, v1.Taint{Key: key, Value: val, Effect: v1.TaintEffect(effect)})
	}
	if t.used {
		taints = append(*t.taints, taints...)
	}
	*t.taints, t.used = taints, true
	return nil
}

// String implements pflag.Value.
func (t *taintsValue) String() string {
	if t.taints == nil {
		return ""
	}
	var items []string
	for _, taint := range *t.taints {
		items = append(items, fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect))
	}
	return strings.Join(items, ",")
}

// Type implements pflag.Value.
func (*taintsValue) Type() string { return "key=value:Effect" }

// memoryValue reads "node:type=quantity[,type=quantity][;node:...]"; the first use replaces, more
// are appended.
type memoryValue struct {
	reserved *[]kubeletv1beta1.MemoryReservation
	used     bool
}

// Set implements pflag.Value.
func (m *memoryValue) Set(value string) error {
	var reserved []kubeletv1beta1.MemoryReservation
	for section := range strings.SplitSeq(value, ";") {
		if section = strings.TrimSpace(section); section == "" {
			continue
		}
		r, err := parseReservation(section)
		if err != nil {
			return err
		}
		reserved = append(reserved, r)
	}
	if m.used {
		reserved = append(*m.reserved, reserved...)
	}
	*m.reserved, m.used = reserved, true
	return nil
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
		q, err := resource.ParseQuantity(amount)
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

// String implements pflag.Value.
func (m *memoryValue) String() string {
	if m.reserved == nil {
		return ""
	}
	var sections []string
	for _, r := range *m.reserved {
		var items []string
		for name, q := range r.Limits {
			items = append(items, fmt.Sprintf("%s=%s", name, q.String()))
		}
		sections = append(sections, fmt.Sprintf("%d:%s", r.NumaNode, strings.Join(items, ",")))
	}
	return strings.Join(sections, ";")
}

// Type implements pflag.Value.
func (*memoryValue) Type() string { return "node:type=quantity" }
