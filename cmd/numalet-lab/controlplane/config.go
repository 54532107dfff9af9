package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/numalet/numalet/internal/child"
)

// Config says what to start and where.
type Config struct {
	// Binaries is the directory of etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
	// kubectl, and of metrics-server for AddMetrics.
	Binaries string
	// Dir is an existing empty directory with a short absolute path for all files of the cluster.
	Dir string
	// Audit makes the API server log every request; see Cluster.AuditLog.
	Audit bool
	// Memory bounds the bytes of memory of each server; 0: no bound.
	Memory uint64
	// FeatureGates are switched on in the API server, the controller manager and the scheduler.
	FeatureGates []string
}

// Names of the files in Dir.
const (
	authorityFile    = "ca.crt"
	authorityKeyFile = "ca.key"
	serverFile       = "apiserver" // .crt and .key, as for the next three
	kubeletFile      = "apiserver-kubelet-client"
	frontFile        = "front-proxy-client"
	metricsFile      = "metrics-server"
	accountsKeyFile  = "sa.key"
	egressFile       = "egress.yaml"
	tunnelSocket     = "tunnel.sock"
	etcdSocket       = "etcd.sock"
	etcdData         = "etcd"
	peerSocket       = "peer.sock" // etcd must have one, although it has no peers
	adminFile        = "admin.conf"
	managerFile      = "controller-manager.conf"
	schedulerFile    = "scheduler.conf"
	auditPolicyFile  = "audit.yaml"
	auditFile        = "audit.log"
)

// services is the range of service addresses. They cannot be reached without kube-proxy.
const services = "10.96.0.0/16"

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

// program returns the path of a server's binary.
func (c Config) program(name string) string { return filepath.Join(c.Binaries, name) }

// Check reports missing binaries.
func (c Config) Check() error {
	var missing []string
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl",
	} {
		if _, err := os.Stat(c.program(name)); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no %s in %q: run test/tools/build.sh cluster, which builds them",
			strings.Join(missing, ", "), c.Binaries)
	}
	return nil
}

// etcd does not sync its files: nothing must survive a crash of the machine.
func (c Config) etcd() *child.Server {
	client, peer := "unix://"+c.path(etcdSocket), "unix://"+c.path(peerSocket)
	return c.process("etcd",
		"--name=numalet", "--data-dir="+c.path(etcdData), "--unsafe-no-fsync",
		"--log-level=warn", "--enable-grpc-gateway=false",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=numalet="+peer)
}

// auditPolicy logs answered requests without their content.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

func (c Config) apiServer(port int) *child.Server {
	out := c.process("kube-apiserver",
		"--etcd-servers=unix://"+c.path(etcdSocket),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--permit-port-sharing",
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--cert-dir="+c.path("apiserver"),
		"--tls-cert-file="+c.path(serverFile+".crt"),
		"--tls-private-key-file="+c.path(serverFile+".key"),
		"--client-ca-file="+c.path(authorityFile),
		"--kubelet-certificate-authority="+c.path(authorityFile),
		"--kubelet-client-certificate="+c.path(kubeletFile+".crt"),
		"--kubelet-client-key="+c.path(kubeletFile+".key"),
		"--requestheader-client-ca-file="+c.path(authorityFile),
		"--requestheader-allowed-names="+frontClient,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.path(frontFile+".crt"),
		"--proxy-client-key-file="+c.path(frontFile+".key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--egress-selector-config-file="+c.path(egressFile),
		"--service-cluster-ip-range="+services,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.path(accountsKeyFile),
		"--service-account-signing-key-file="+c.path(accountsKeyFile),
		"--enable-bootstrap-token-auth",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged")
	out.Args = append(out.Args, c.gates()...)
	if c.Audit {
		out.Args = append(out.Args, "--audit-policy-file="+c.path(auditPolicyFile),
			"--audit-log-path="+c.path(auditFile))
	}
	return out
}

// gates are the arguments that switch the feature gates on.
func (c Config) gates() (args []string) {
	for _, name := range c.FeatureGates {
		args = append(args, "--feature-gates="+name+"=true")
	}
	return args
}

func (c Config) controllerManager() *child.Server {
	return c.process("kube-controller-manager", append(c.gates(),
		"--kubeconfig="+c.path(managerFile), "--use-service-account-credentials",
		"--secure-port=0", "--leader-elect=false",
		// The default of 15 s is for thousands of workloads; here a user or test waits for it.
		"--horizontal-pod-autoscaler-sync-period=2s",
		"--root-ca-file="+c.path(authorityFile),
		"--service-account-private-key-file="+c.path(accountsKeyFile),
		"--cluster-signing-cert-file="+c.path(authorityFile),
		"--cluster-signing-key-file="+c.path(authorityKeyFile))...)
}

func (c Config) scheduler() *child.Server {
	return c.process("kube-scheduler", append(c.gates(),
		"--kubeconfig="+c.path(schedulerFile), "--secure-port=0", "--leader-elect=false")...)
}

func (c Config) process(name string, args ...string) *child.Server {
	return &child.Server{Program: c.program(name), Args: args, Log: c.path(name + ".log"),
		Memory: c.Memory}
}

// egress configures the API server to reach nodes through the tunnel.
func (c Config) egress() string {
	return fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: %q}}
`, c.path(tunnelSocket))
}
