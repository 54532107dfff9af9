package preflight

import (
	"context"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/internal/version"
)

// skew is by how many minor versions a node's agent may be older than the API server, as Kubernetes says
// of kubelets. It may not be newer.
const skew = 3

// versions compares the versions of the parts.
func (l *looking) versions(ctx context.Context) {
	own := version.Get().GitVersion
	l.add(Versions, "numalet", Same, "%s, like a kubelet %s", own, config.KubeletVersion)
	l.add(Versions, "Linux", Same, "%s", kernel())
	if l.Kubelet == nil {
		l.add(Versions, "kubelet", Note, "none runs on this machine")
	} else if told, err := l.Kubelet.Version(ctx); err != nil {
		l.add(Versions, "kubelet", Note, "%v", err)
	} else {
		l.besideKubelet(told)
	}
	if l.cluster.client == nil {
		return
	}
	told, err := l.cluster.client.Discovery().ServerVersion()
	if err != nil {
		l.add(Versions, "API server", Blocks, "%v", err)
		return
	}
	l.besideServer(told.GitVersion)
}

// besideKubelet compares with the kubelet that numalet would replace.
func (l *looking) besideKubelet(told string) {
	is, err := utilversion.ParseGeneric(told)
	own := utilversion.MustParseGeneric(config.KubeletVersion)
	switch {
	case err != nil:
		l.add(Versions, "kubelet", Note, "%q: %v", told, err)
	case is.Major() == own.Major() && is.Minor() == own.Minor():
		l.add(Versions, "kubelet", Same, "%s", told)
	default:
		l.add(Versions, "kubelet", Note, "%s: defaults, feature gates and files become those of %s", told,
			config.KubeletVersion).Advice = "the way back is tested with a kubelet " + config.KubeletVersion
	}
}

// besideServer applies Kubernetes' rule for the versions of nodes.
func (l *looking) besideServer(told string) {
	server, err := utilversion.ParseGeneric(told)
	own := utilversion.MustParseGeneric(config.KubeletVersion)
	switch {
	case err != nil:
		l.add(Versions, "API server", Note, "%q: %v", told, err)
	case server.Major() != own.Major() || own.Minor() > server.Minor():
		l.add(Versions, "API server", Changes, "%s: a node may not be newer than its API server, and numalet is "+
			"like %s", told, config.KubeletVersion).Advice = "upgrade the control plane first"
	case server.Minor()-own.Minor() > skew:
		l.add(Versions, "API server", Changes, "%s: a node may be older by at most %d minor versions, and numalet is "+
			"like %s", told, skew, config.KubeletVersion).Advice = "take a newer numalet"
	default:
		l.add(Versions, "API server", Same, "%s", told)
	}
}
