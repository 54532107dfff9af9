package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

const (
	// pairName is the prefix of the files with certificate and key, the kubelet's.
	pairName = "kubelet-client"
	// firstLook and laterLook are the pauses between looks for another certificate, before and
	// after the first one.
	firstLook, laterLook = time.Second, 10 * time.Second
	// withoutCertificate is how long the agent continues without a certificate while the API server
	// answers.
	withoutCertificate = 5 * time.Minute
)

// identity is the name by which the API server must know a node (the Node authorizer).
func identity(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: "system:node:" + node, Organization: []string{"system:nodes"},
	}}
}

// newManager returns the manager that requests the node's certificate and renews it in time. It
// uses the present certificate, whatever the kubeconfig began with, and the bootstrap kubeconfig
// while there is none.
func (c *Client) newManager(ctx context.Context, cfg Config, own, bootstrap *rest.Config,
	failed certificate.Counter) (certificate.Manager, error) {
	log := klog.FromContext(ctx)
	store, err := certificate.NewFileStoreWithLogger(log.V(2), pairName, cfg.Cluster.CertDir,
		cfg.Cluster.CertDir, own.CertFile, own.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("open the certificates in --cert-dir: %w", err)
	}
	m, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(current *tls.Certificate) (kubernetes.Interface, error) {
			if current == nil {
				return kubernetes.NewForConfig(bootstrap)
			}
			return c.main, nil
		},
		Template: identity(cfg.Node), SignerName: certificates.KubeAPIServerClientKubeletSignerName,
		GetUsages:               certificate.DefaultKubeletClientGetUsages,
		CertificateStore:        store,
		BootstrapCertificatePEM: own.CertData, BootstrapKeyPEM: own.KeyData,
		CertificateRenewFailure: failed, Ctx: &ctx,
	})
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate in --cert-dir: %w; remove what is "+
			"damaged there", err)
	}
	return m, nil
}

// lifetime returns the remaining seconds of a certificate's validity.
func lifetime(c *tls.Certificate) float64 {
	if c == nil || c.Leaf == nil {
		return math.Inf(1)
	}
	return time.Until(c.Leaf.NotAfter).Seconds()
}

// rotation follows the node's certificate.
type rotation struct {
	manager certificate.Manager
	last    *tls.Certificate // that changed was told of; nil: none yet
	changed func()           // another certificate is there
	left    *metrics.Gauge
	// once is set if the first certificate is requested and not renewed.
	once bool
}

// run returns an error if the API server answers and there was no valid certificate for longer than
// withoutCertificate: the operator should see that.
func (r *rotation) run(ctx context.Context) error {
	r.manager.Start()
	defer r.manager.Stop()
	since := time.Now()
	for {
		r.left.Set(lifetime(r.manager.Current()))
		every := laterLook
		if r.last == nil {
			every = firstLook
		}
		if !await.For(ctx, every) {
			return nil
		}
		now := r.manager.Current()
		switch {
		case now != nil:
			since = time.Now()
		case time.Since(since) > withoutCertificate && r.manager.ServerHealthy():
			return fmt.Errorf("no valid client certificate for %s, although the API server "+
				"answers; approve the node's certificate signing request (kubectl get csr), or "+
				"give a new --bootstrap-kubeconfig", withoutCertificate)
		}
		if now == nil || now == r.last {
			continue
		}
		klog.FromContext(ctx).Info("The node has another client certificate", "until",
			now.Leaf.NotAfter)
		r.last = now
		r.changed()
		if r.once {
			r.manager.Stop()
		}
	}
}
