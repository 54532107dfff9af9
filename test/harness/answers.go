package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// readOnlyPort is an agent's read-only port on this machine.
type readOnlyPort int

// Pods returns the node's pods by name, from /pods.
func (p readOnlyPort) Pods() (map[string]v1.Pod, error) {
	var list v1.PodList
	if err := p.decode("/pods", &list); err != nil {
		return nil, err
	}
	out := map[string]v1.Pod{}
	for _, pod := range list.Items {
		out[pod.Name] = pod
	}
	return out, nil
}

// Placements returns the rows of /placements by "pod/container".
func (p readOnlyPort) Placements() (map[string]assigned.Row, error) {
	var rows []assigned.Row
	if err := p.decode("/placements", &rows); err != nil {
		return nil, err
	}
	out := map[string]assigned.Row{}
	for _, r := range rows {
		out[r.Pod+"/"+r.Container] = r
	}
	return out, nil
}

func (p readOnlyPort) decode(path string, into any) error {
	raw, err := p.get(path)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	return err
}

// Get returns the body that the read-only port answers to GET path.
func (n *Node) Get(path string) string {
	n.t.Helper()
	raw, err := n.get(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(raw)
}

// URL returns the URL of a path on the read-only port.
func (p readOnlyPort) URL(path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", p, path)
}

func (p readOnlyPort) get(path string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(p.URL(path))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, raw)
	}
	return raw, err
}
