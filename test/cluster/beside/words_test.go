package beside

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"
)

// words replaces what differs between two runs for no reason of an agent.
type words []struct {
	pattern *regexp.Regexp
	with    string
}

func newWords(namespace, node string) (out words) {
	for _, pair := range [][2]string{
		{regexp.QuoteMeta(namespace), "NAMESPACE"}, {regexp.QuoteMeta(node), "NODE"},
		{`[0-9a-f]{64}`, "ID"}, {`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UID"},
		{`\d{4}-\d\d-\d\dT[0-9:.]+Z`, "TIME"}, {`kube-api-access-\w+`, "kube-api-access"},
		{`gpu-\d`, "GPU"}, {`used: \d+`, "used: N"}, {`dial tcp: .*`, "dial tcp: WHY"},
		{`198\.1[89]\.\d+\.\d+`, "IP"},
	} {
		out = append(out, struct {
			pattern *regexp.Regexp
			with    string
		}{regexp.MustCompile(pair[0]), pair[1]})
	}
	return out
}

func (w words) of(text string) string {
	for _, r := range w {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

// flat returns a value as JSON, with a line for each field.
func (w words) flat(t testing.TB, value any) map[string]string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 {
				out[w.of(path)] = "{}"
			}
			for key, field := range v {
				walk(path+"."+key, field)
			}
		case []any:
			for i, one := range v {
				at := fmt.Sprint(i)
				if path == ".declaredFeatures" { // a set
					at = fmt.Sprint(one)
				}
				walk(path+element(one, at), one)
			}
		default:
			out[w.of(path)] = w.of(fmt.Sprint(v))
		}
	}
	walk("", decoded)
	return out
}

// element names an element of a list: by its type, by its name if that identifies it, or as
// otherwise.
func element(one any, otherwise string) string {
	fields, _ := one.(map[string]any)
	for _, key := range []string{"type", "name"} {
		if name, ok := fields[key].(string); ok && otherwise != "" || name == "pods" {
			return "[" + name + "]"
		}
	}
	return "[" + otherwise + "]"
}

// families returns the metrics of a text: type, labels and buckets of each.
func families(t *testing.T, text string) map[string]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, f := range all {
		if !strings.HasPrefix(name, "go_") { // which Go it was built with
			out[name] = family(f)
		}
	}
	return out
}

func family(f *dto.MetricFamily) string {
	labels, buckets := map[string]bool{}, map[float64]bool{}
	for _, m := range f.GetMetric() {
		for _, label := range m.GetLabel() {
			labels[label.GetName()] = true
		}
		for _, b := range m.GetHistogram().GetBucket() {
			buckets[b.GetUpperBound()] = true
		}
	}
	return fmt.Sprintf("%s %v %v", strings.ToLower(f.GetType().String()),
		slices.Sorted(maps.Keys(labels)), slices.Sorted(maps.Keys(buckets)))
}
