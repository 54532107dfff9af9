package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

const etcHosts = "/etc/hosts"

// hostsMount writes the pod's /etc/hosts into its directory and returns the mount; nil if the pod has
// no address to put in.
func (c Config) hostsMount(dir string, pod *v1.Pod, ips []string) (*runtimeapi.Mount, error) {
	if len(ips) == 0 && !pod.Spec.HostNetwork {
		return nil, nil
	}
	text, err := c.hostsText(pod, ips)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "etc-hosts")
	if err := writeInPlace(path, text); err != nil {
		return nil, fmt.Errorf("write hosts file: %w", err)
	}
	return &runtimeapi.Mount{ContainerPath: etcHosts, HostPath: path, SelinuxRelabel: true}, nil
}

// writeInPlace writes into the existing file, since running containers have it mounted. If path is
// not a regular file, a new one replaces it.
func writeInPlace(path string, content []byte) error {
	old, err := files.Read(path, int64(len(content)))
	if err == nil && bytes.Equal(old, content) {
		return nil
	}
	f, err := files.Open(path, os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		if err := files.Replace(path, content); err != nil {
			return err
		}
		return os.Chmod(path, 0o644)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}

// hostsText returns the file's content: in the host's network the host's file, else the pod's own
// names.
func (c Config) hostsText(pod *v1.Pod, ips []string) ([]byte, error) {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		host, err := os.ReadFile(c.HostsFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the host's hosts file: %w", err)
		}
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(host)
	} else {
		name, domain, err := cri.Hostname(pod, c.ClusterDomain)
		if err != nil {
			return nil, err
		}
		b.WriteString("# Kubernetes-managed hosts file.\n")
		for _, line := range []string{
			"127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback",
			"fe00::0\tip6-localnet", "fe00::0\tip6-mcastprefix",
			"fe00::1\tip6-allnodes", "fe00::2\tip6-allrouters",
		} {
			b.WriteString(line + "\n")
		}
		if domain != "" {
			name = name + "." + domain + "\t" + name
		}
		for _, ip := range ips {
			b.WriteString(ip + "\t" + name + "\n")
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range pod.Spec.HostAliases {
		b.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return b.Bytes(), nil
}
