package eni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
)

// Count is a resource that a node has a number of: addresses for pods, members of a trunk.
type Count struct {
	Resource string `json:"resource"`
	// One of these gives the number: a path below the metadata service's base URL, a file, a
	// command. The text is a number, a JSON array, or a list with one item per line.
	Metadata string `json:"metadata,omitempty"`
	File     string `json:"file,omitempty"`
	Command  string `json:"command,omitempty"`
	// Less is the number that the node itself needs, such as an interface's first address.
	Less int `json:"less,omitempty"`
}

// Metadata describes the metadata service of a cloud.
type Metadata struct {
	// URL is the base of the paths.
	URL string `json:"url,omitempty"`
	// Token is the URL where PUT returns a token before each request, TokenHeader the header for
	// the token. Empty: no token is needed.
	Token       string `json:"token,omitempty"`
	TokenHeader string `json:"tokenHeader,omitempty"`
}

const (
	countDeadline = 10 * time.Second
	maxCountText  = 4 << 20
	maxCount      = 100_000
)

func (c Count) check(m Metadata) error {
	if err := checkResource(c.Resource); err != nil {
		return err
	}
	none := func(source string) bool { return source == "" }
	switch {
	case len(slices.DeleteFunc([]string{c.Metadata, c.File, c.Command}, none)) != 1:
		return fmt.Errorf("resource %s: give exactly one of metadata, file and command",
			c.Resource)
	case c.Metadata != "" && m.URL == "":
		return fmt.Errorf("resource %s: the metadata service counts it and has no URL: "+
			"give --metadata-url", c.Resource)
	case c.Less < 0:
		return fmt.Errorf("resource %s: less is %d, and cannot be negative", c.Resource, c.Less)
	}
	return nil
}

func (m Metadata) check() error {
	for _, text := range []string{m.URL, m.Token} {
		u, err := url.Parse(text)
		if err != nil || text != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("metadata service %q: write a URL such as "+
				"http://169.254.169.254/latest/meta-data/", text)
		}
	}
	if (m.Token == "") != (m.TokenHeader == "") {
		return errors.New("metadata service: token and tokenHeader belong together")
	}
	return nil
}

// ask returns the present number.
func (c Count) ask(ctx context.Context, m Metadata) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, countDeadline)
	defer cancel()
	var text []byte
	var err error
	switch {
	case c.Metadata != "":
		text, err = m.get(ctx, c.Metadata)
	case c.File != "":
		text, err = files.ReadNamed(c.File, maxCountText)
	default:
		text, err = output(ctx, c.Command)
	}
	n := 0
	if err == nil {
		n, err = parseCount(string(text))
	}
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", c.Resource, err)
	}
	return max(0, n-c.Less), nil
}

// parseCount reads a number, or counts the items of a list.
func parseCount(text string) (n int, err error) {
	text = strings.TrimSpace(text)
	var list []json.RawMessage
	if n, err = strconv.Atoi(text); err != nil {
		n = 0
		if json.Unmarshal([]byte(text), &list) == nil {
			n = len(list)
		} else {
			for line := range strings.Lines(text) {
				if strings.TrimSpace(line) != "" {
					n++
				}
			}
		}
	}
	switch {
	case strings.HasPrefix(text, "<"), strings.HasPrefix(text, "{"),
		strings.HasPrefix(text, "[") && list == nil: // its lines are not items
		return 0, fmt.Errorf("%q is neither a number nor a list", oneline.Cut(text, 80))
	case n < 0 || n > maxCount:
		return 0, fmt.Errorf("the count is %d, want 0 to %d", n, maxCount)
	}
	return n, nil
}

// get reads a path of the metadata service.
func (m Metadata) get(ctx context.Context, path string) ([]byte, error) {
	header := http.Header{}
	if m.Token != "" {
		token, err := request(ctx, http.MethodPut, m.Token,
			http.Header{m.TokenHeader + "-TTL-Seconds": {"60"}})
		if err != nil {
			return nil, err
		}
		header.Set(m.TokenHeader, strings.TrimSpace(string(token)))
	}
	return request(ctx, http.MethodGet, strings.TrimSuffix(m.URL, "/")+"/"+
		strings.TrimPrefix(path, "/"), header)
}

func request(ctx context.Context, method, to string, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header.Set(name, values[0])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCountText+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", method, to, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s %s: %s: %s", method, to, resp.Status, oneline.Of(string(text)))
	case len(text) > maxCountText:
		return nil, fmt.Errorf("%s %s: the answer has more than %d bytes", method, to, maxCountText)
	}
	return text, nil
}

// output returns what a command writes.
func output(ctx context.Context, command string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.WaitDelay = time.Second
	out := &bounded{}
	said := &bounded{}
	cmd.Stdout, cmd.Stderr = out, said
	err := cmd.Run()
	switch {
	case out.more:
		return nil, fmt.Errorf("%s: it wrote more than %d bytes", command, maxCountText)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %s", command, cmp.Or(ctx.Err(), err),
			oneline.Of(string(said.text)))
	}
	return out.text, nil
}

// bounded keeps the first maxCountText bytes and refuses more.
type bounded struct {
	text []byte
	more bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := maxCountText - len(b.text)
	b.more = b.more || len(p) > room
	b.text = append(b.text, p[:min(room, len(p))]...)
	if b.more {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// counted returns n devices of a resource, all alike.
func counted(resource string, n int) (devices []*v1beta1.Device) {
	_, kind, _ := strings.Cut(resource, "/")
	for i := range n {
		devices = append(devices, &v1beta1.Device{ID: fmt.Sprintf("%s-%d", kind, i),
			Health: v1beta1.Healthy})
	}
	return devices
}
