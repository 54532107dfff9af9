package cluster_test

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
)

// testBenchmark checks the CIS Kubernetes Benchmark's rules for a worker node: for the files that
// the agent has written on a node that it bootstrapped, and for its server. agent/node/config tests the
// settings. The rules 4.1.1 to 4.1.4 and 4.1.7 to 4.1.10 are about files of others; 4.3 is about
// kube-proxy.
func testBenchmark(t *testing.T, n rig.Node, certificates string) {
	t.Helper()
	for file, rule := range map[string]string{
		n.Kubeconfig: "4.1.5 and 4.1.6",
		filepath.Join(certificates, "kubelet-client-current.pem"): "the client's key, as 4.1.5",
	} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode&0o177 != 0 {
			t.Errorf("rule %s: %s has mode %o", rule, file, mode)
		}
	}
	for _, dir := range []string{n.Root, certificates, n.Kubeconfig} {
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			// Pods' files have the modes that the API says.
			if rest, is := strings.CutPrefix(path, filepath.Join(n.Root, "pods")+"/"); is &&
				strings.Count(rest, "/") >= 2 {
				return fs.SkipDir
			}
			return ownAlone(e, path)
		}); err != nil {
			t.Error(err)
		}
	}
	address := fmt.Sprintf("127.0.0.1:%v", n.Settings["port"])
	if code, _ := (asker{t, "https://" + address, ""}).ask("GET", "/pods"); code != 401 {
		t.Errorf("rule 4.2.1: a stranger gets %d", code)
	}
	for suite, lets := range map[uint16]bool{
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: true,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: false,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA:    false,
	} {
		conn, err := tls.Dial("tcp", address, &tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // what is agreed on is looked at
			MaxVersion:         tls.VersionTLS12, CipherSuites: []uint16{suite},
		})
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != lets {
			t.Errorf("rule 4.2.12: with %s a connection ends with %v", tls.CipherSuiteName(suite), err)
		}
	}
	if _, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // see above
		MinVersion:         tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
	}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

// ownAlone returns an error if anybody else owns or may write the agent's file.
func ownAlone(e fs.DirEntry, path string) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o022 != 0 ||
		int(owner) != os.Geteuid() {
		return fmt.Errorf("%s has mode %s and is user %d's", path, info.Mode(), owner)
	}
	return nil
}
