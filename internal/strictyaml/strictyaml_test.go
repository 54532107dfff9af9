package strictyaml

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		data string
		json string
		err  string
	}{
		"yaml":                {data: "a: 1\n", json: `{"a":1}`},
		"json":                {data: `{"a":[1,"x"]}`, json: `{"a":[1,"x"]}`},
		"one of two is blank": {data: "# only a comment\n---\na: 1\n---\n", json: `{"a":1}`},
		"directive":           {data: "%YAML 1.1\n---\na: 1\n", json: `{"a":1}`},
		"dashes in a scalar":  {data: "a: |\n  ---\n  b\n", json: `{"a":"---\nb\n"}`},
		"content after mark":  {data: "--- {a: 1}\n", json: `{"a":1}`},
		"empty":               {data: "", err: "is empty"},
		"comments":            {data: "# nothing\n\n", err: "is empty"},
		"null":                {data: "null", err: "is empty"},
		"two documents": {
			data: "a: 1\n---\nb: 2\n", err: "holds 2 documents; put each in a file of its own",
		},
		"scalar": {
			data: "hello", err: `holds the string "hello"; want an object with apiVersion and kind`,
		},
		"list": {data: "- a\n", err: "holds a list; want an object with apiVersion and kind"},
		"binary": {data: "\x7fELF\x02\x01\x01\x00\x00",
			err: "is not YAML or JSON: control characters are not allowed"},
		"truncated": {data: "a:\n  b: [1, 2\n",
			err: "is not YAML or JSON: line 2: did not find expected ',' or ']'"},
		"line numbers survive": {data: "---\n# c\n---\na: [\n",
			err: "is not YAML or JSON: line 4: did not find expected node content"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d, err := Parse([]byte(tt.data))
			if got := errorText(err); got != tt.err {
				t.Fatalf("error %q, want %q", got, tt.err)
			}
			if string(d.JSON) != tt.json {
				t.Errorf("JSON %s, want %s", d.JSON, tt.json)
			}
		})
	}
}

func TestDuplicates(t *testing.T) {
	d, err := Parse([]byte("a: 1\nb: 2\na: 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `line 3: key "a" already set in map`; d.Duplicates != want {
		t.Errorf("Duplicates %q, want %q", d.Duplicates, want)
	}
	if want := `{"a":3,"b":2}`; string(d.JSON) != want {
		t.Errorf("JSON %s, want %s", d.JSON, want)
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		yaml                  string
		given, unknown, wrong []string
	}{
		{yaml: "maxPods: 10\nauthentication: {webhook: {enabled: false}}\nevictionHard: {x: z}\n",
			given: []string{"authentication.webhook.enabled", "evictionHard", "maxPods"}},
		{yaml: "maxPods: null\n"},
		{yaml: "MaxPods: 3\nauthentication: {webhok: {}}\nwhatever: 1\n", unknown: []string{
			`MaxPods: unknown field; did you mean "maxPods"?`,
			`authentication.webhok: unknown field; did you mean "webhook"?`,
			`whatever: unknown field; remove it or correct its name`}},
		{yaml: "maxPods: many\nmaxOpenFiles: 1.5\nregistryBurst: 3000000000\nsyncFrequency: 5\n" +
			"cpuCFSQuota: \"yes\"\nclusterDNS: 10.0.0.1\nevictionHard: {memory.available: 5}\n" +
			"authentication: []\n",
			given: []string{"clusterDNS", "cpuCFSQuota", "evictionHard", "maxOpenFiles", "maxPods",
				"registryBurst", "syncFrequency"},
			wrong: []string{
				`authentication: want an object, found a list`,
				`clusterDNS: want a list, found the string "10.0.0.1"`,
				`cpuCFSQuota: want true or false, found the string "yes"`,
				`evictionHard["memory.available"]: want a string, found the number 5`,
				`maxOpenFiles: want a whole number of 64 bits, found the number 1.5`,
				`maxPods: want a whole number of 32 bits, found the string "many"`,
				`registryBurst: want a whole number of 32 bits, found the number 3000000000`,
				`syncFrequency: want a duration such as "10s" or "2m", found the number 5`,
			}},
		{yaml: "reservedMemory:\n- numaNode: 0\n  limits: {memory: lots}\n  zone: 1\n",
			given: []string{"reservedMemory"},
			unknown: []string{`reservedMemory[0].zone: unknown field; remove it or correct its ` +
				`name`},
			wrong: []string{`reservedMemory[0].limits.memory: want a quantity such as "500m" or ` +
				`"2Gi", found the string "lots"`}},
	}
	for _, tt := range tests {
		d, err := Parse([]byte(tt.yaml))
		if err != nil {
			t.Fatal(err)
		}
		got := Check[kubeletv1beta1.KubeletConfiguration](d)
		want := Findings{
			Given: tt.given, Unknown: Messages{First: tt.unknown}, Wrong: Messages{First: tt.wrong},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", tt.yaml, got, want)
		}
	}
}

// FuzzCheck: Decode accepts what Check accepts, and messages stay one line.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("kind: Pod\nspec: {containers: [{name: a, resources: {limits: {cpu: 1}}}]}\n"))
	f.Add([]byte(
		`{"metadata":{"labels":{"a":1}},"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1Gi"}}]}}`))
	f.Add([]byte("spec:\n  tolerations: [{tolerationSeconds: 1e3}]\n  containers: {}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("error of several lines: %q", err)
			}
			return
		}
		got := Check[v1.Pod](d)
		for _, m := range slices.Concat(got.Unknown.First, got.Wrong.First) {
			if strings.ContainsAny(m, "\n\r") {
				t.Fatalf("message of several lines: %q", m)
			}
		}
		if err := d.Decode(&v1.Pod{}); err != nil && len(got.Wrong.First) == 0 &&
			len(got.Unknown.First) == 0 {
			t.Fatalf("Check found nothing, Decode: %v", err)
		}
	})
}

// A text of others is shown in one line, without terminal control characters.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a  b\n c": "a b c", "a\x1b[2Jb": "a [2Jb", "\x00": "", "a\xffb": "a\ufffdb", "ü\u009bx": "ü x",
		strings.Repeat("x", longest+1): strings.Repeat("x", longest-22) + "... (401 bytes in all)",
	} {
		if got := OneLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
