package kubeapi

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// seen is what the API server was asked.
type seen struct {
	path, user, token string
	header            http.Header
}

// apiServer answers as an API server does that signs certificates and has no object.
type apiServer struct {
	*httptest.Server
	t        *testing.T
	ca       *x509.Certificate // nil: not made yet
	caKey    any
	lifetime time.Duration // of the certificates that it signs

	mu       sync.Mutex // guards what is below
	asked    []seen
	opened   int // connections
	signed   []byte
	approved bool
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &apiServer{t: t, caKey: key, lifetime: time.Hour, approved: true}
	a.ca = parse(t, a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, key.Public()))
	pool := x509.NewCertPool()
	pool.AddCert(a.ca)
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.answer))
	a.TLS = &tls.Config{ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	a.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.opened++
		}
	}
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

func parse(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	out, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sign makes a certificate of the server's authority.
func (a *apiServer) sign(c *x509.Certificate, public any) []byte {
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(a.lifetime)
	}
	parent := cmp.Or(a.ca, c)
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, public, a.caKey)
	if err != nil {
		a.t.Error(err)
	}
	return raw
}

func (a *apiServer) answer(w http.ResponseWriter, r *http.Request) {
	s := seen{path: r.URL.Path, token: r.Header.Get("Authorization"), header: r.Header}
	if len(r.TLS.PeerCertificates) > 0 {
		s.user = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	a.mu.Lock()
	a.asked = append(a.asked, s)
	a.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "certificatesigningrequests"):
		raw, err := io.ReadAll(r.Body)
		obj, _, err2 := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		csr, ok := obj.(*certificates.CertificateSigningRequest)
		if err != nil || err2 != nil || !ok {
			http.Error(w, "no CSR", http.StatusBadRequest)
			return
		}
		a.write(w, a.take(csr))
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		a.write(w, &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: 422})
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond): // the next list tells
		}
	case strings.HasSuffix(r.URL.Path, "certificatesigningrequests"):
		a.write(w, a.list())
	default:
		a.write(w, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	}
}

// take remembers the request to sign; its name is always the same.
func (a *apiServer) take(csr *certificates.CertificateSigningRequest) runtime.Object {
	block, _ := pem.Decode(csr.Spec.Request)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signed = block.Bytes
	csr.Name, csr.UID = "csr", "csr"
	return csr
}

func (a *apiServer) list() runtime.Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &certificates.CertificateSigningRequestList{
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
	}
	request, err := x509.ParseCertificateRequest(a.signed)
	if err != nil {
		return out
	}
	csr := certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr", UID: "csr", ResourceVersion: "1"},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{
				Type: "CERTIFICATE REQUEST", Bytes: a.signed,
			}),
			SignerName: certificates.KubeAPIServerClientKubeletSignerName,
		},
	}
	if a.approved {
		raw := a.sign(&x509.Certificate{
			Subject: request.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, request.PublicKey)
		csr.Status.Conditions = []certificates.CertificateSigningRequestCondition{{
			Type: certificates.CertificateApproved, Status: v1.ConditionTrue,
		}}
		csr.Status.Certificate = encode("CERTIFICATE", raw)
	}
	out.Items = append(out.Items, csr)
	return out
}

func (a *apiServer) write(w http.ResponseWriter, o runtime.Object) {
	w.Header().Set("Content-Type", "application/json")
	groups := scheme.Codecs.LegacyCodec(v1.SchemeGroupVersion,
		certificates.SchemeGroupVersion, metav1.Unversioned)
	if err := groups.Encode(o, w); err != nil {
		panic(err)
	}
}

// requests are those for a path so far.
func (a *apiServer) requests(suffix string) (out []seen) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.asked {
		if strings.HasSuffix(s.path, suffix) {
			out = append(out, s)
		}
	}
	return out
}

func (a *apiServer) connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened
}

// kubeconfig writes one whose user is what the lines say.
func (a *apiServer) kubeconfig(t *testing.T, dir, name, user string) string {
	t.Helper()
	ca := filepath.Join(dir, "ca.crt")
	write(t, ca, encode("CERTIFICATE", a.Certificate().Raw))
	path := filepath.Join(dir, name)
	write(t, path, []byte(`apiVersion: v1
kind: Config
clusters:
- {name: c, cluster: {server: "`+a.URL+`", certificate-authority: ca.crt}}
contexts:
- {name: x, context: {cluster: c, user: u}}
current-context: x
users:
- name: u
  user: `+user+"\n"))
	return path
}

// pair makes a client certificate of the server and its key, both in one PEM.
func (a *apiServer) pair(t *testing.T, name string, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"system:nodes"}},
		NotAfter:    until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public())
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join([][]byte{encode("CERTIFICATE", raw), encode("EC PRIVATE KEY", private)}, nil)
}

func encode(kind string, raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
