package certificates

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
)

// Files is a certificate from two files, which it reads again when they change. It logs what cannot
// be used and keeps the last good certificate.
type Files struct {
	content *dynamiccertificates.DynamicCertKeyPairContent
	current atomic.Pointer[tls.Certificate]
}

// FromFiles reads the files. The certificate file may also contain its chain.
func FromFiles(certFile, keyFile string) (*Files, error) {
	content, err := dynamiccertificates.NewDynamicServingContentFromFiles("node-api", certFile,
		keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the node API's certificate: %w; see tlsCertFile and "+
			"tlsPrivateKeyFile", err)
	}
	f := &Files{content: content}
	if err := f.take(); err != nil {
		return nil, err
	}
	content.AddListener(f)
	return f, nil
}

func (f *Files) take() error {
	cert, err := tls.X509KeyPair(f.content.CurrentCertKeyContent())
	if err != nil {
		return fmt.Errorf("use the node API's certificate: %w", err)
	}
	f.current.Store(&cert)
	return nil
}

// Enqueue loads the files again; the library calls it after a change.
func (f *Files) Enqueue() {
	if err := f.take(); err != nil {
		klog.Background().Error(err, "Loading the certificate failed; keeping the previous one")
	}
}

// Certificate returns the newest usable certificate.
func (f *Files) Certificate() (*tls.Certificate, error) { return f.current.Load(), nil }

// Run follows the files until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	f.content.Run(ctx, 1)
	return nil
}

// SelfSigned returns the self-signed certificate in dir, in the kubelet's files. It makes one if
// there is none that can be read.
func SelfSigned(dir, host string, addresses []net.IP) (*Files, error) {
	certFile, keyFile := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	if have, err := certutil.CanReadCertAndKey(certFile, keyFile); err == nil && have {
		return FromFiles(certFile, keyFile)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, addresses, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the node API: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the certificates' folder: %w; choose another with "+
			"--cert-dir", err)
	}
	if err := certutil.WriteCert(certFile, cert); err != nil {
		return nil, fmt.Errorf("write the node API's certificate: %w", err)
	}
	if err := keyutil.WriteKey(keyFile, key); err != nil {
		return nil, fmt.Errorf("write the node API's key: %w", err)
	}
	return FromFiles(certFile, keyFile)
}
