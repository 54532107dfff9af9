package resize

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/checksum"
	"github.com/numalet/numalet/internal/podtest"
)

func sized(cpu, memory string) *v1.Pod {
	return podtest.New("", podtest.Containers("a cpu="+cpu+" memory="+memory))
}

// kubeletFile writes the file as a kubelet does.
func kubeletFile(t *testing.T, root, data string) {
	t.Helper()
	text := fmt.Sprintf(`{"data":%q,"checksum":%d}`, data, checksum.Of(data))
	if err := os.WriteFile(filepath.Join(root, KubeletFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The newest sandbox says what its pod was admitted with, and else a kubelet's file.
func TestAdmitted(t *testing.T) {
	root := t.TempDir()
	kubeletFile(t, root, `{"entries":{"k":{"ContainerResources":{"a":{"limits":{"cpu":"3"}}}},`+
		`"n":{"ContainerResources":{"a":{"limits":{"cpu":"4"}}}}}}`)
	a, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	own := cri.Sandbox{Annotations: map[string]string{Annotation: Describe(sized("8", "1Gi"))}}
	broken := cri.Sandbox{Annotations: map[string]string{Annotation: "{"}}
	for name, test := range map[string]struct {
		pod  cri.Pod
		want string
	}{
		"our own":          {cri.Pod{UID: "o", Sandboxes: []cri.Sandbox{own, {}}}, "8"},
		"our own, newer":   {cri.Pod{UID: "n", Sandboxes: []cri.Sandbox{own}}, "8"},
		"a kubelet's":      {cri.Pod{UID: "k", Sandboxes: []cri.Sandbox{{}}}, "3"},
		"broken":           {cri.Pod{UID: "k", Sandboxes: []cri.Sandbox{broken}}, "3"},
		"nobody's":         {cri.Pod{UID: "o", Sandboxes: []cri.Sandbox{{}, own}}, ""},
		"without a record": {cri.Pod{UID: "k"}, ""},
	} {
		got := ""
		if r := a.Of(test.pod); r != nil {
			limits := r.Containers["a"].Limits
			got = limits.Cpu().String()
		}
		if got != test.want {
			t.Errorf("%s: %q CPUs, want %q", name, got, test.want)
		}
	}
	pod := sized("8", "1Gi")
	if got := a.Of(cri.Pod{Sandboxes: []cri.Sandbox{own}}).In(pod); got != pod {
		t.Error("what is written on a sandbox is not what is read from it")
	}
}

// What is written for a kubelet is what is read: active pods as they were admitted, and others that run
// as a kubelet or an earlier run of the agent admitted them.
func TestExport(t *testing.T) {
	root := t.TempDir()
	kubeletFile(t, root, `{"entries":{"k":{"ContainerResources":{"a":{"limits":{"cpu":"3"}}}},`+
		`"a":{"ContainerResources":{"a":{"limits":{"cpu":"4"}}}},`+
		`"gone":{"ContainerResources":{"a":{"limits":{"cpu":"5"}}}}}}`)
	a, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	active := podtest.New("a", podtest.Containers("a cpu=6 memory=1Gi"), podtest.Resources("cpu=6 memory=1Gi"))
	own := cri.Sandbox{Annotations: map[string]string{Annotation: Describe(sized("8", "1Gi"))}}
	raw, err := a.Export([]*v1.Pod{active}, []cri.Pod{
		{UID: "a", Sandboxes: []cri.Sandbox{{}}}, {UID: "k", Sandboxes: []cri.Sandbox{{}}},
		{UID: "o", Sandboxes: []cri.Sandbox{own}}, {UID: "nobody's", Sandboxes: []cri.Sandbox{{}}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(root, KubeletFile), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, err = Open(root); err != nil {
		t.Fatal(err)
	}
	got := map[types.UID]string{}
	for uid, r := range a.kubelet {
		limits := r.Containers["a"].Limits
		got[uid] = limits.Cpu().String()
	}
	if want := map[types.UID]string{"a": "6", "k": "3", "o": "8"}; !maps.Equal(got, want) {
		t.Errorf("CPUs by pod are %v, want %v", got, want)
	}
	if whole := a.kubelet["a"].Pod; whole == nil || whole.Limits.Cpu().String() != "6" {
		t.Errorf("the pod as a whole has %v", whole)
	}
}

// A file that cannot be used is told of by name, and costs nothing else.
func TestKubeletFileThatCannotBeRead(t *testing.T) {
	for content, want := range map[string]string{
		"{": "unexpected end", `{"data":"{}","checksum":1}`: "its checksum",
	} {
		root := t.TempDir()
		path := filepath.Join(root, KubeletFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Open(root)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", content, err)
		}
		if r := a.Of(cri.Pod{UID: "k", Sandboxes: []cri.Sandbox{{}}}); r != nil {
			t.Errorf("%s: %v", content, r)
		}
		if kept, err := filepath.Glob(path + "?*"); err != nil || len(kept) != 1 {
			t.Errorf("%s: moved aside were %q, %v", content, kept, err)
		}
	}
	if _, err := Open(t.TempDir()); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// What is too long for an annotation is left out.
func TestDescribeHasABound(t *testing.T) {
	pod := podtest.New("")
	for i := range 2000 {
		podtest.Containers(fmt.Sprint("container-", i))(pod)
	}
	if text := Describe(pod); text != "" {
		t.Errorf("an annotation of %d bytes", len(text))
	}
}

func TestInfeasible(t *testing.T) {
	static := Policies{StaticCPUs: true, StaticMemory: true}
	shared, whole := sized("..2", "..1Gi"), sized("2", "1Gi")
	podtest.Resources("")(whole)
	for name, test := range map[string]struct {
		of               Policies
		admitted, wanted *v1.Pod
		want             string
	}{
		"CPUs":            {static, sized("2", "1Gi"), sized("1", "2Gi"), "CPU Manager"},
		"memory":          {static, sized("2", "1Gi"), sized("2", "2Gi"), "Memory Manager"},
		"not guaranteed":  {static, shared, sized("1", "2Gi"), "does not resize"},
		"no policy":       {Policies{}, sized("2", "1Gi"), sized("1", "2Gi"), "does not resize"},
		"the pod's alone": {static, sized("2", "1Gi"), whole, "does not resize"},
	} {
		if got := test.of.Infeasible(test.admitted, test.wanted); !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
