package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// nodeProxy reaches an agent through the API server of its cluster, which forwards requests to the
// node's API. The user of the kubeconfig needs the right to nodes/proxy.
type nodeProxy struct {
	name       string
	kubeconfig *pflag.Flag
}

func (p *nodeProxy) add(flags *pflag.FlagSet) {
	flags.StringVar(&p.name, "node", "",
		"ask the agent of this node, through the API server of --kubeconfig")
	const usage = "with --node: how to reach the API server; empty: $KUBECONFIG, or ~/.kube/config"
	if flags.Lookup("kubeconfig") == nil { // else the flag is the agent's, which means the same
		flags.String("kubeconfig", "", usage)
	}
	p.kubeconfig = flags.Lookup("kubeconfig")
	p.kubeconfig.Usage, p.kubeconfig.Hidden = usage, false
}

// connect returns the base URL of the node's paths and the client to use for it.
func (p *nodeProxy) connect() (*url.URL, *http.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.kubeconfig.Value.String()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("--node %s: %w; name a kubeconfig with --kubeconfig", p.name, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("--node %s: %w", p.name, err)
	}
	defaultTLS := config.TLSClientConfig.CAFile != "" || len(config.TLSClientConfig.CAData) > 0
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, defaultTLS)
	if err != nil {
		return nil, nil, fmt.Errorf("--node %s: %w", p.name, err)
	}
	return base.JoinPath("api/v1/nodes", url.PathEscape(p.name), "proxy"), client, nil
}
