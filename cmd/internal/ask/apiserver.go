package ask

import (
	"fmt"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// throughAPIServer reaches the node's agent through the API server of its cluster, which forwards requests to the
// node's API. The user of the kubeconfig needs the right to nodes/proxy.
func (a *Agent) throughAPIServer() (target, error) {
	config, err := a.Cluster()
	if err != nil {
		return target{}, fmt.Errorf("--node %s: %w; name a kubeconfig with --kubeconfig", a.node, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return target{}, fmt.Errorf("--node %s: %w", a.node, err)
	}
	defaultTLS := config.TLSClientConfig.CAFile != "" || len(config.TLSClientConfig.CAData) > 0
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, defaultTLS)
	if err != nil {
		return target{}, fmt.Errorf("--node %s: %w", a.node, err)
	}
	return target{node: a.node, client: client, address: address{
		base: base.JoinPath("api/v1/nodes", url.PathEscape(a.node), "proxy")}}, nil
}

// Cluster returns how the API server is reached: by --kubeconfig, $KUBECONFIG or ~/.kube/config.
func (a *Agent) Cluster() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig.Value.String()
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}
