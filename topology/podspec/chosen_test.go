package podspec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

// choosingPod has an init container, a sidecar and two others, each with two GPUs.
func choosingPod(annotations map[string]string) *v1.Pod {
	return podtest.New("team/",
		podtest.Containers("init! gpu=2", "side~ gpu=2", "main gpu=2", "more gpu=2 nic=1"),
		func(p *v1.Pod) { p.Annotations, p.Spec.SchedulerName = annotations, "chooser" })
}

// Annotations count of the schedulers that the node names, in the namespaces that it names.
func TestWhoChoosesDevices(t *testing.T) {
	pod := choosingPod(map[string]string{"example.com/gpu_container-main": "a, b"})
	for who, counts := range map[string]bool{
		"": false, "other": false, "chooser": true, "team/chooser": true, "foreign/chooser": false,
		"other chooser": true, "team/other": false,
	} {
		var by topology.Choosers
		for text := range strings.FieldsSeq(who) {
			one, err := topology.ParseChooser(text)
			if err != nil {
				t.Fatal(err)
			}
			by = append(by, one)
		}
		chosen, err := ChosenDevices(pod, by)
		if got := slices.Equal(chosen["main"]["example.com/gpu"], []string{"a", "b"}); err != nil ||
			got != counts {
			t.Errorf("%q: %v, %v", who, chosen, err)
		}
	}
	for _, text := range []string{"", "/", "/a", "a/", "a/b/c", "a b"} {
		if _, err := topology.ParseChooser(text); err == nil {
			t.Errorf("%q is taken for a scheduler", text)
		}
	}
}

func TestChosenDevices(t *testing.T) {
	const gpu, key = "example.com/gpu", "example.com/gpu_container-"
	if errs := validation.IsQualifiedName(ChoiceAnnotation(gpu, "main")); len(errs) > 0 {
		t.Errorf("the API server refuses the annotation: %q", errs)
	}
	long := strings.Repeat("x", maxChoice+1)
	for _, test := range []struct {
		annotations map[string]string
		want, err   string
	}{
		{map[string]string{key + "main": "a,b", "example.com/nic_container-more": "n"},
			"[example.com/gpu_container-main example.com/nic_container-more]", ""},
		{map[string]string{key + "init": "a,b", key + "main": "b,a", key + "more": "c,d"},
			"[example.com/gpu_container-init example.com/gpu_container-main " +
				"example.com/gpu_container-more]", ""},
		// It is about something else.
		{map[string]string{"example.com/x_container-y": "a", "gpu_container-main": "", "a": "b"}, "[]", ""},
		{map[string]string{key + "nobody": "a,b"}, "[]", "annotation example.com/gpu_container-nobody: " +
			"the pod has no container nobody; name one that asks for example.com/gpu"},
		{map[string]string{"example.com/nic_container-main": "n"}, "[]", "annotation " +
			"example.com/nic_container-main: 1 devices are named, and container main asks for 0 of " +
			"example.com/nic; name as many as it asks for, or remove the annotation"},
		{map[string]string{key + "main": " "}, "[]", "annotation example.com/gpu_container-main: 0 " +
			"devices are named, and container main asks for 2 of example.com/gpu; name as many as it " +
			"asks for, or remove the annotation"},
		{map[string]string{key + "main": "a,,b"}, "[]", `annotation example.com/gpu_container-main: ` +
			`"a,,b" has an empty device id; write one comma between two ids`},
		{map[string]string{key + "main": "a,a"}, "[]", `annotation example.com/gpu_container-main: ` +
			`device "a" is named twice; name each once`},
		{map[string]string{key + "main": long}, "[]", fmt.Sprintf("annotation "+
			"example.com/gpu_container-main: a list of %d bytes, and at most %d are read; write the ids "+
			"alone, with a comma between them", maxChoice+1, maxChoice)},
		{map[string]string{key + "main": "a,b", key + "more": "b,c"},
			"[example.com/gpu_container-main example.com/gpu_container-more]",
			`annotation example.com/gpu_container-more: device "b" is chosen for container main as ` +
				`well, which runs at the same time; choose another one`},
		{map[string]string{key + "side": "a,b", key + "init": "a,b", key + "main": "b,c"},
			"[example.com/gpu_container-init example.com/gpu_container-main " +
				"example.com/gpu_container-side]",
			`annotation example.com/gpu_container-main: device "b" is chosen for container side as ` +
				`well, which runs at the same time; choose another one`},
		{map[string]string{key + "main": "a", key + "more": "b,c"}, // what can be read is
			"[example.com/gpu_container-more]", "annotation example.com/gpu_container-main: 1 devices " +
				"are named, and container main asks for 2 of example.com/gpu; name as many as it asks " +
				"for, or remove the annotation"},
	} {
		chosen, err := ChosenDevices(choosingPod(test.annotations),
			topology.Choosers{{Scheduler: "chooser"}})
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got := fmt.Sprint(chosen.Annotations()); got != test.want || text != test.err {
			t.Errorf("%.80v: %s, %s\nwant %s, %s", test.annotations, got, text, test.want, test.err)
		}
	}
}

// All devices of a resource are chosen if those of each container are.
func TestAllChosen(t *testing.T) {
	pod := choosingPod(map[string]string{
		"example.com/gpu_container-main": "a,b", "example.com/nic_container-more": "n",
	})
	chosen, err := ChosenDevices(pod, topology.Choosers{{Scheduler: "chooser"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := chosen.All(pod, "example.com/gpu"); got != nil {
		t.Errorf("%q are said to be all GPUs", got)
	}
	if got := chosen.All(pod, "example.com/nic"); !slices.Equal(got, []string{"n"}) {
		t.Errorf("%q are said to be all interfaces", got)
	}
}
