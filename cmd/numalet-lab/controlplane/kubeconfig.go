package controlplane

import (
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// access lets clients and nodes reach the API server, which knows them by their certificates.
type access struct {
	authority authority
	token     bootstrapToken
	port      int
}

// URL returns the URL of the API server.
func (a access) URL() string {
	return "https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(a.port))
}

// AdminKubeconfig returns the kubeconfig of a user with all rights.
func (c *Cluster) AdminKubeconfig() string { return c.config.path(adminFile) }

// CAFile returns the file with the certificate of the authority that signs for the cluster's
// servers and clients.
func (c *Cluster) CAFile() string { return c.config.path(authorityFile) }

// Until returns the cluster with an authority whose certificates expire at end, and so are due for
// renewal long before.
func (c *Cluster) Until(end time.Time) *Cluster {
	out := *c
	out.authority.end = end
	return &out
}

// Kubeconfig writes a kubeconfig for a user in these groups: a node is system:node:NAME in
// system:nodes.
func (a access) Kubeconfig(file, user string, groups ...string) error {
	p, err := a.authority.client(user, groups...)
	if err != nil {
		return err
	}
	return a.writeKubeconfig(file, &api.AuthInfo{
		ClientCertificateData: p.certificate, ClientKeyData: p.key,
	})
}

// BootstrapKubeconfig writes a kubeconfig with which a node requests its certificate.
func (a access) BootstrapKubeconfig(file string) error {
	return a.writeKubeconfig(file, &api.AuthInfo{Token: a.token.String()})
}

func (a access) writeKubeconfig(file string, user *api.AuthInfo) error {
	const name = "numalet"
	return clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{
			name: {Server: a.URL(), CertificateAuthorityData: a.authority.own.certificate},
		},
		AuthInfos:      map[string]*api.AuthInfo{name: user},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)
}

// NodeCertificate writes the certificate and key of a node's server, for the node's name and all
// addresses of this machine, so that the API server accepts it.
func (a access) NodeCertificate(certFile, keyFile, node string) error {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list the host's addresses: %w", err)
	}
	hosts := []string{node}
	for _, address := range addresses {
		if ip, ok := address.(*net.IPNet); ok {
			hosts = append(hosts, ip.IP.String())
		}
	}
	p, err := a.authority.server(node, hosts...)
	if err != nil {
		return err
	}
	return p.write(certFile, keyFile)
}

// NodeSettings returns fields of a KubeletConfiguration: a server on this port with these files,
// which authenticates and authorizes through the cluster with this CA file.
func NodeSettings(port int, certFile, keyFile, caFile string) map[string]any {
	return map[string]any{
		"port": port, "tlsCertFile": certFile, "tlsPrivateKeyFile": keyFile,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": caFile},
		},
		"authorization": map[string]any{"mode": "Webhook"},
	}
}
