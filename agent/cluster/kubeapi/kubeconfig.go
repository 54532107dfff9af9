package kubeapi

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"github.com/numalet/numalet/internal/files"
)

// maxFile is the greatest size of a kubeconfig or a certificate.
const maxFile = 1 << 20

// readKubeconfig reads the kubeconfig that a flag names. Its paths are relative to it.
func readKubeconfig(flag, path string) (*api.Config, error) {
	raw, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; name a kubeconfig that exists, or leave the flag out "+
			"to run without an API server", flag, path, err)
	}
	cfg, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is no kubeconfig: %w", flag, path, err)
	}
	for _, c := range cfg.Clusters {
		c.LocationOfOrigin = path
	}
	for _, a := range cfg.AuthInfos {
		a.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(cfg); err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return cfg, nil
}

// readFile follows links: the administrator owns the path.
func readFile(path string) ([]byte, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return files.Read(target, maxFile)
}

// restConfig reads how to reach the API server.
func restConfig(flag, path string) (*rest.Config, error) {
	cfg, err := readKubeconfig(flag, path)
	if err != nil {
		return nil, err
	}
	if err := checkAuthority(cfg); err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	out, err := clientcmd.NewDefaultClientConfig(*cfg, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return out, nil
}

// checkAuthority checks the authority of the API server in the current context, if one is named:
// client-go would wait for a pipe, and does not name the file that is no certificate.
func checkAuthority(cfg *api.Config) error {
	context := cfg.Contexts[cfg.CurrentContext]
	if context == nil || cfg.Clusters[context.Cluster] == nil {
		return nil // client-go says that
	}
	cluster := cfg.Clusters[context.Cluster]
	raw, field := cluster.CertificateAuthorityData, "certificate-authority-data"
	var err error
	if len(raw) == 0 {
		if cluster.CertificateAuthority == "" {
			return nil
		}
		field = "certificate-authority " + cluster.CertificateAuthority
		raw, err = readFile(cluster.CertificateAuthority)
	}
	if err == nil {
		_, err = certutil.ParseCertsPEM(raw)
	}
	if err != nil {
		return fmt.Errorf("%s of cluster %s: %w; it has to be the certificate, as PEM, of the "+
			"authority that signed the API server's", field, context.Cluster, err)
	}
	return nil
}

// hasCertificate reports whether a client certificate identifies the node.
func hasCertificate(c *rest.Config) bool { return c.CertFile != "" || len(c.CertData) > 0 }

// usable says why a kubeconfig's client certificate cannot be used at a time; a kubeconfig without
// one passes.
func usable(c *rest.Config, now time.Time) error {
	if !hasCertificate(c) {
		return nil
	}
	raw := c.CertData
	if len(raw) == 0 {
		var err error
		if raw, err = readFile(c.CertFile); err != nil {
			return err
		}
	}
	chain, err := certutil.ParseCertsPEM(raw)
	if err != nil {
		return fmt.Errorf("read the client certificate: %w", err)
	}
	return current(chain, now)
}

// renewed reports whether dir holds a certificate of the node that is valid at a time, since it was
// renewed there.
func renewed(dir string, now time.Time) bool {
	pair, err := pairFile(dir)
	if err != nil {
		return false
	}
	at := rest.TLSClientConfig{CertFile: pair, KeyFile: pair}
	return usable(&rest.Config{TLSClientConfig: at}, now) == nil
}

func current(chain []*x509.Certificate, now time.Time) error {
	for _, c := range chain {
		if now.After(c.NotAfter) {
			return fmt.Errorf("the client certificate of %s has expired on %s, and this machine's "+
				"clock says %s: set the clock if it is wrong, or have a new certificate made",
				c.Subject.CommonName, c.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339))
		}
	}
	return nil
}

// writeKubeconfig writes the kubeconfig of a node that requests its certificate: with the API
// server of the bootstrap kubeconfig, and certificate and key in the file pair.
func writeKubeconfig(path, bootstrap, pair string) error {
	from, err := readKubeconfig("--bootstrap-kubeconfig", bootstrap)
	if err != nil {
		return err
	}
	context := from.Contexts[from.CurrentContext]
	if context == nil || from.Clusters[context.Cluster] == nil {
		return fmt.Errorf("--bootstrap-kubeconfig %s: the current context %q names no cluster",
			bootstrap, from.CurrentContext)
	}
	out := api.NewConfig()
	out.Clusters["default-cluster"] = from.Clusters[context.Cluster]
	out.AuthInfos["default-auth"] = &api.AuthInfo{ClientCertificate: pair, ClientKey: pair}
	out.Contexts["default-context"] = &api.Context{
		Cluster: "default-cluster", AuthInfo: "default-auth",
	}
	out.CurrentContext = "default-context"
	raw, err := clientcmd.Write(*out)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = files.ReplaceDurably(path, raw)
	}
	if err != nil {
		return fmt.Errorf("write --kubeconfig: %w", err)
	}
	return nil
}

// pairFile returns the path of the node's present certificate and key.
func pairFile(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("--cert-dir is empty; name the directory of the node's certificates")
	}
	return filepath.Abs(filepath.Join(dir, pairName+"-current.pem"))
}
