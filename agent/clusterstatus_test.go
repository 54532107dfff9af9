package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/numalet/numalet/agent/kubeapi/mirror"
	"github.com/numalet/numalet/agent/kubeapi/statuses"
	"github.com/numalet/numalet/agent/metrics"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/source"
)

// Of what the API server has for the node the mirror pods are never handed on to be run.
func TestMirrorsDoNotRun(t *testing.T) {
	var (
		cluster = told{}
		err     error
	)
	registry := server.NewRegistry()
	if cluster.statuses, err = statuses.New(statuses.Config{
		Client: fake.NewClientset(), Registry: registry,
	}); err != nil {
		t.Fatal(err)
	}
	if cluster.mirrors, err = mirror.New(mirror.Config{
		Client: fake.NewClientset(), Node: "n", Registry: registry,
	}); err != nil {
		t.Fatal(err)
	}
	if cluster.metrics, err = metrics.New(metrics.Config{Registry: registry}); err != nil {
		t.Fatal(err)
	}
	shown, run := podFrom(source.APISource), podFrom(source.APISource)
	shown.Annotations[source.AnnotationMirror] = ""
	shown.Name, shown.UID, run.Name, run.UID = "a", "a", "b", "b"
	all := []*v1.Pod{shown, run}
	if got := cluster.saw(all); len(got) != 1 || got[0] != run || all[0] != shown {
		t.Errorf("%v are to run", got)
	}
}
