package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/files"
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

// maxFile bounds the files of a self-signed certificate in bytes.
const maxFile = 1 << 20

// SelfSigned returns the self-signed certificate in dir, in the kubelet's files. It makes one if there is
// none. Files that are there and cannot be used are moved aside, which is a files.ErrUnusable beside the
// new certificate. Any other error comes without one.
func SelfSigned(dir, host string, addresses []net.IP) (*Files, error) {
	certFile, keyFile := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	have, why := usable(certFile, keyFile)
	if why == nil {
		return have, nil
	}
	moved, err := moveAside(why, certFile, keyFile)
	if err != nil {
		return nil, err
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
	made, err := FromFiles(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return made, moved
}

// usable reads the files if they are files of a moderate size: what reads them next would wait for a pipe.
func usable(certFile, keyFile string) (*Files, error) {
	for _, path := range []string{certFile, keyFile} {
		if _, err := files.ReadNamed(path, maxFile); err != nil {
			return nil, fmt.Errorf("read the node API's certificate: %w", err)
		}
	}
	return FromFiles(certFile, keyFile)
}

// moveAside moves what is there of the paths out of the way. moved says so; nil: there was nothing.
func moveAside(why error, paths ...string) (moved, err error) {
	var asides []string
	for _, path := range paths {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		err := files.SetAside(path, time.Now(), why)
		one, is := errors.AsType[*files.Unusable](err)
		if !is {
			return nil, err
		}
		asides = append(asides, one.Aside)
	}
	if len(asides) == 0 {
		return nil, nil
	}
	return &files.Unusable{Path: paths[0], Aside: strings.Join(asides, " and "), Err: why}, nil
}
