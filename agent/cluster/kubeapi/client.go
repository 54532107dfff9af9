package kubeapi

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/trace"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/internal/version"
)

// Config configures a client.
type Config struct {
	Cluster config.Cluster
	Kubelet *kubeletv1beta1.KubeletConfiguration
	// Node is the node's name.
	Node     string
	Registry metrics.KubeRegistry
	// Tell records an event of the node; nil: nothing does.
	Tell func(eventType, reason, message string)
	// Gates are the node's; nil: those of client-go keep their defaults.
	Gates featuregate.FeatureGate
	// Tracer makes a span of each request and hands its context on; nil: neither.
	Tracer trace.TracerProvider
}

// ReasonLost is the reason of the event that a dead connection was given up.
const ReasonLost = "APIServerConnectionLost"

// Client reaches the API server. Its clients can be used before Run; if the node is to get a
// certificate, they wait for it.
type Client struct {
	main, reviews, heartbeats, events kubernetes.Interface
	connections                       *connrotation.ConnectionTracker
	rotation                          *rotation // nil: the kubeconfig says who the node is, once for all
	restored                          mailbox.Topic
	ready                             chan struct{}
	tell                              func(eventType, reason, message string) // nil: there are no events
	tracer                            trace.TracerProvider                    // nil: none
}

// New reads the kubeconfig. It sends nothing.
func New(ctx context.Context, c Config) (*Client, error) {
	if err := setFeatures(c.Gates); err != nil {
		return nil, err
	}
	own, bootstrap, err := credentials(ctx, c)
	if err != nil {
		return nil, err
	}
	out := &Client{
		connections: connrotation.NewConnectionTracker(), ready: make(chan struct{}),
		tell: c.Tell, tracer: c.Tracer,
	}
	if bootstrap != nil {
		if err := out.rotate(ctx, c, own, bootstrap); err != nil {
			return nil, err
		}
	}
	if out.rotation == nil || out.rotation.manager.Current() != nil {
		close(out.ready)
	}
	return out, out.connect(own, c.Kubelet)
}

// setFeatures gives client-go the node's gates about CBOR. All clients of a process have these in common.
func setFeatures(gates featuregate.FeatureGate) error {
	library, is := clientfeatures.FeatureGates().(interface {
		Set(name clientfeatures.Feature, on bool) error
	})
	if gates == nil || !is {
		return nil
	}
	for _, name := range []clientfeatures.Feature{
		clientfeatures.ClientsAllowCBOR, clientfeatures.ClientsPreferCBOR,
	} {
		if err := library.Set(name, gates.Enabled(featuregate.Feature(name))); err != nil {
			return fmt.Errorf("set feature gate %s of the clients: %w", name, err)
		}
	}
	return nil
}

// credentials returns how the node reaches the API server, and with what it requests its
// certificate; nil: it requests none.
func credentials(ctx context.Context, c Config) (own, bootstrap *rest.Config, err error) {
	own, err = restConfig("--kubeconfig", c.Cluster.Kubeconfig)
	if err == nil {
		err = usable(own, time.Now())
		if err != nil && c.Kubelet.RotateCertificates && renewed(c.Cluster.CertDir, time.Now()) {
			err = nil // the kubeconfig has what the node began with
		}
	}
	switch {
	case err == nil && c.Kubelet.RotateCertificates && hasCertificate(own):
		tune(own, c.Kubelet)
		return own, own, nil
	case err == nil:
		tune(own, c.Kubelet)
		return own, nil, nil
	case c.Cluster.BootstrapKubeconfig == "":
		return nil, nil, err
	}
	klog.FromContext(ctx).Info("Asking for a client certificate with --bootstrap-kubeconfig",
		"because", err)
	if bootstrap, err = restConfig("--bootstrap-kubeconfig",
		c.Cluster.BootstrapKubeconfig); err != nil {
		return nil, nil, err
	}
	pair, err := pairFile(c.Cluster.CertDir)
	if err == nil {
		err = writeKubeconfig(c.Cluster.Kubeconfig, c.Cluster.BootstrapKubeconfig, pair)
	}
	if err != nil {
		return nil, nil, err
	}
	tune(bootstrap, c.Kubelet)
	own = rest.AnonymousClientConfig(bootstrap)
	own.CertFile, own.KeyFile = pair, pair
	tune(own, c.Kubelet)
	return own, bootstrap, nil
}

// tune sets what all clients have in common.
func tune(c *rest.Config, k *kubeletv1beta1.KubeletConfiguration) {
	c.ContentType = k.ContentType
	if k.ContentType == kuberuntime.ContentTypeProtobuf { // not every kind of object has it
		c.AcceptContentTypes = k.ContentType + "," + kuberuntime.ContentTypeJSON
	}
	c.UserAgent = fmt.Sprintf("numalet/%s (%s/%s)", version.Get().GitVersion, runtime.GOOS,
		runtime.GOARCH)
	c.QPS, c.Burst = float32(*k.KubeAPIQPS), int(k.KubeAPIBurst)
}

// rotate has the clients use the node's present certificate.
func (c *Client) rotate(ctx context.Context, cfg Config, own, bootstrap *rest.Config) error {
	var s metric.Set
	c.rotation = &rotation{
		once: !cfg.Kubelet.RotateCertificates,
		left: s.Gauge("kubelet_certificate_manager_client_ttl_seconds",
			"Seconds until the node's client certificate expires; infinite while there is none."),
		changed: func() {
			select {
			case <-c.ready:
			default:
				close(c.ready)
			}
			c.Reset()
		},
	}
	failed := s.Counter("kubelet_certificate_manager_client_expiration_renew_errors",
		"Attempts to renew the node's client certificate that failed.")
	if err := s.Register(cfg.Registry); err != nil {
		return err
	}
	m, err := c.newManager(ctx, cfg, own, bootstrap, failed)
	if err != nil {
		return err
	}
	c.rotation.manager, c.rotation.last = m, m.Current()
	return nil
}

// connect makes the clients, each with a connection of its own.
func (c *Client) connect(own *rest.Config, k *kubeletv1beta1.KubeletConfiguration) (err error) {
	if c.main, err = c.client(own); err != nil {
		return err
	}
	if c.reviews, err = c.client(rest.CopyConfig(own)); err != nil { // with a rate of its own
		return err
	}
	// Nothing slows down lease and status, and a request that takes longer has failed.
	beats := rest.CopyConfig(own)
	beats.QPS = -1
	beats.Timeout = min(k.NodeStatusUpdateFrequency.Duration,
		time.Duration(k.NodeLeaseDurationSeconds)*time.Second)
	if c.heartbeats, err = c.client(beats); err != nil {
		return err
	}
	events := rest.CopyConfig(own)
	events.QPS, events.Burst = float32(*k.EventRecordQPS), int(k.EventBurst)
	if events.QPS == 0 {
		events.QPS = -1 // no limit
	}
	c.events, err = c.client(events)
	return err
}

func (c *Client) client(cfg *rest.Config) (kubernetes.Interface, error) {
	rt, err := c.transport(cfg)
	if err != nil {
		return nil, err
	}
	if c.tracer != nil {
		rt = tracing.WrapperFor(c.tracer)(rt)
	}
	out, err := kubernetes.NewForConfigAndClient(cfg, &http.Client{
		Transport: rt, Timeout: cfg.Timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return out, nil
}

// Main returns the client for everything else: at most kubeAPIQPS requests a second.
func (c *Client) Main() kubernetes.Interface { return c.main }

// Reviews returns the client for questions about the node API's own clients: at most kubeAPIQPS
// requests a second, beside those of Main.
func (c *Client) Reviews() kubernetes.Interface { return c.reviews }

// Heartbeats returns the client for lease and status.
func (c *Client) Heartbeats() kubernetes.Interface { return c.heartbeats }

// Events returns the client for events: at most eventRecordQPS requests a second.
func (c *Client) Events() kubernetes.Interface { return c.events }

// Reset closes all connections: current requests fail, watches end, and the next ones connect
// again. It is called when the API server no longer answers, and when the certificate changed.
func (c *Client) Reset() { c.connections.CloseAll() }

// Restored is published when the API server's objects are older than before, as after the restore
// of a backup: subscribers that know resource versions have to list again.
func (c *Client) Restored() *mailbox.Topic { return &c.restored }

// Run maintains the node's certificate until ctx ends, or until there was no valid one for so long
// that there will be none. Current requests then end.
func (c *Client) Run(ctx context.Context) error {
	defer c.Reset()
	if c.rotation == nil {
		<-ctx.Done()
		return nil
	}
	return c.rotation.run(ctx)
}
