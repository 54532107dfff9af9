package agent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/podsource"
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/source"
)

// newKube makes the client of the API server; nil without --kubeconfig.
func newKube(ctx context.Context, n node) (*kubeapi.Client, error) {
	if n.cfg.Cluster.Kubeconfig == "" {
		return nil, nil
	}
	return kubeapi.New(ctx, kubeapi.Config{
		Cluster: n.cfg.Cluster, Kubelet: &n.cfg.Kubelet, Node: n.name,
	})
}

// apiFeeds is the feed of pods that the API server has for the node; none on a standalone node.
func apiFeeds(n node, report func(source.Problem)) []source.Feed {
	if n.kube == nil {
		return nil
	}
	return []source.Feed{podsource.New(podsource.Config{
		Client: n.kube.Main(), Node: n.name, Report: report, Saw: withoutMirrors,
		Restored: mailbox.Subscribe(n.kube.Restored()),
	})}
}

// withoutMirrors leaves out the pods that stand for static ones: these run already.
func withoutMirrors(all []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(all), func(p *v1.Pod) bool {
		_, mirror := p.Annotations[source.AnnotationMirror]
		return mirror
	})
}

// flaws refuses pods of the API server that are against a rule that the node relies on. Manifests
// are refused when they are read.
func flaws(a admission.Attempt) *admission.Refusal {
	if a.Pod.Annotations[source.AnnotationSource] != source.APISource {
		return nil
	}
	if why := source.Flaw(a.Pod); why != "" {
		return &admission.Refusal{Reason: source.FailedValidation, Message: why}
	}
	return nil
}

// kubeParts are those that run from the start on a node of a cluster.
func kubeParts(n node) []part {
	if n.kube == nil {
		return nil
	}
	return []part{{"API server client", n.kube.Run}}
}
