package test

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

// kubeletEvents lists the reasons of kubelet 1.37's events, one per line.
//
//go:embed testdata/kubelet-events.txt
var kubeletEvents string

// untold maps the kubelet's event reasons that the agent does not use to the explanation.
var unreported = map[string]string{
	"FailedAttachVolume": "no volume is attached yet", "SuccessfulAttachVolume": "the same",
	"VolumeResizeSuccessful": "FileSystemResizeSuccessful says it, as the kubelet's on a node",
	"ResizeDeferred":         "Resize and the reason are one word", "ResizeInfeasible": "the same",
	"FailedPodSandBoxStatus":  "FailedSync says it: a sandbox is looked at with its pod",
	"HostIPsIPFamilyMismatch": "it cannot happen: pods have the addresses of the node's families",
}

// uncounted maps prefixes of the kubelet's metrics that the agent does not have to the explanation.
var uncounted = map[string]string{
	"kubelet_orphan_pod_cleaned_": "a pod that nobody desires ends as all others",
	"kubelet_imagemanager_inmemory_": "all records are in memory: there is no cache that could be " +
		"full",
	"kubelet_pleg_discard_events":            "nothing is discarded",
	"kubelet_pod_level_resources_admission_": "of a gate that is off",
	"kubelet_started_host_process_":          "of Windows",
}

// literals returns all string literals in the code of the agent, without tests.
func literals(t *testing.T) sets.Set[string] {
	t.Helper()
	out := sets.New[string]()
	visit := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") ||
			strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text, err := strconv.Unquote(l.Value)
				if err == nil {
					out.Insert(text)
				}
			}
			return true
		})
		return nil
	}
	for _, dir := range []string{"agent", "cgroups", "cpumanager", "cri", "deviceplugin", "topology"} {
		if err := filepath.WalkDir(filepath.Join("..", dir), visit); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Each reason of the kubelet's events is used here, or it is explained why not.
func TestReasonsOfEvents(t *testing.T) {
	said := literals(t)
	all := sets.New(strings.Fields(kubeletEvents)...)
	for reason := range all {
		if said.Has(reason) == (unreported[reason] != "") {
			t.Errorf("reason %s: in the code %t, not told here because %q", reason, said.Has(reason),
				unreported[reason])
		}
	}
	for reason := range unreported {
		if !all.Has(reason) {
			t.Errorf("%s is no reason of the kubelet's", reason)
		}
	}
}

// Each of the kubelet's metrics exists here, or it is explained why not.
func TestNamesOfMetrics(t *testing.T) {
	said := literals(t)
	// Some names are made of two parts.
	is := func(name string) bool {
		for at := range name {
			if said.Has(name[at:]) && (at == 0 || said.Has(name[:at])) {
				return true
			}
		}
		return false
	}
	all := []string{"plugin_manager_total_plugins", "prober_probe_duration_seconds",
		"prober_probe_total", "storage_operation_duration_seconds", "volume_manager_total_volumes"}
	for line := range strings.Lines(kubeletMetrics) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, name)
	}
	for _, name := range all {
		why := ""
		for prefix, w := range uncounted {
			if strings.HasPrefix(name, prefix) {
				why = w
			}
		}
		if is(name) == (why != "") {
			t.Errorf("metric %s: in the code %t, not there because %q", name, is(name), why)
		}
	}
}
