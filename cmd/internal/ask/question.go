package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/oneline"
)

// timeout is longer than an agent takes to answer any question.
const timeout = 40 * time.Second

// maxAnswer bounds how many bytes of an agent's answer are read.
const maxAnswer = 256 << 20

// Question is a request to an agent: a GET if it has no body, else a POST.
type Question struct {
	Path  []string // its elements, which are escaped
	Query url.Values
	Body  []byte // YAML or JSON
}

// Refusal is an answer of an agent, or of the API server before it, that is not the one asked for.
type Refusal struct {
	Code int
	Text string
	by   string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s says: %s", r.by, r.Text) }

// Unknown reports whether the error is an agent's answer that it does not know what it was asked about.
func Unknown(err error) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Code == http.StatusNotFound
}

// Get asks for a path and decodes the answer.
func (a *Agent) Get(ctx context.Context, answer any, path ...string) error {
	return a.Ask(ctx, Question{Path: path}, answer)
}

// Post sends a body as JSON and decodes the answer.
func (a *Agent) Post(ctx context.Context, body, answer any, path ...string) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the question: %w", err)
	}
	return a.Ask(ctx, Question{Path: path, Body: raw}, answer)
}

// Ask asks a question and decodes the answer.
func (a *Agent) Ask(ctx context.Context, q Question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := a.Open(ctx, q)
	if err != nil {
		return err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err == nil {
		raw, err = withoutControls(raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, answer)
	}
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// Open asks a question and returns the answer as it comes; the caller closes it. An answer that refuses is an error.
func (a *Agent) Open(ctx context.Context, q Question) (io.ReadCloser, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	return t.open(ctx, q)
}

func (t target) open(ctx context.Context, q Question) (io.ReadCloser, error) {
	resp, err := t.send(ctx, q)
	if err != nil && t.spare != nil && q.Body == nil && notOpened(err) {
		if other, failed := t.spare.send(ctx, q); failed == nil {
			t, resp, err = *t.spare, other, nil
		}
	}
	if err != nil {
		return nil, t.unreached(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil, t.refusal(q, resp.StatusCode, raw)
}

func (t target) send(ctx context.Context, q Question) (*http.Response, error) {
	base := t.base
	if t.socket != "" {
		base = &url.URL{Scheme: "http", Host: "localhost"}
	}
	var path []string
	for _, element := range q.Path {
		path = append(path, url.PathEscape(element))
	}
	to := base.JoinPath(path...)
	to.RawQuery = q.Query.Encode()
	method := http.MethodGet
	if q.Body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	if q.Body != nil {
		req.Header.Set("Content-Type", "application/yaml")
	}
	return t.client.Do(req)
}

// notOpened reports whether nothing listens on a socket, or the user may not open it.
func notOpened(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// refusal returns what was answered as an error; of an API server's Status, the message.
func (t target) refusal(q Question, code int, raw []byte) error {
	text := strings.TrimSpace(string(raw))
	var status metav1.Status
	if json.Unmarshal(raw, &status) == nil && status.Kind == "Status" && status.Message != "" {
		text = status.Message
	}
	switch {
	case t.node != "" && strings.Contains(text, "x509: "):
		text += "; if it is the node's own certificate that the API server does not trust, set serverTLSBootstrap: " +
			"true on the node and approve its CSR (kubectl certificate approve)"
	case code == http.StatusNotFound && text == "404 page not found" && t.socket == "" && t.node == "":
		text = fmt.Sprintf("/%s is not served at a read-only port; ask through the agent's socket (--root-dir, on its "+
			"machine), or through the API server (--node)", strings.Join(q.Path, "/"))
	}
	return &Refusal{Code: code, Text: oneline.Of(text), by: t.who()}
}

// who returns a description of the agent that is asked.
func (t target) who() string {
	if t.node != "" {
		return "node " + t.node
	}
	return "the agent at " + t.String()
}

// unreached returns an error that says what to do if no answer came.
func (t target) unreached(err error) error {
	err = cause(err)
	const others = "name another agent with --server, $" + Env + " or --node"
	switch {
	case t.node != "":
		return fmt.Errorf("ask the API server for node %s: %w; see --kubeconfig", t.node, err)
	case t.socket != "" && errors.Is(err, fs.ErrPermission):
		return MayNot(t.socket)
	case t.socket != "":
		return fmt.Errorf("ask the agent: %w; start it, name its root directory with --root-dir, or %s", err, others)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent answers at %s: set readOnlyPort (--read-only-port) of the agent, which is off by "+
			"default, or ask on its machine as root, without an address, or with --node through the API server",
			t.String())
	}
	return fmt.Errorf("ask the agent at %s: %w; %s", t.String(), err, others)
}

// MayNot is the error of a user who may not open the agent's socket.
func MayNot(socket string) error {
	return fmt.Errorf("only root and the agent's own user may ask through %s: ask as root, or name the node with "+
		"--node, as a user of the cluster who may", socket)
}

// cause returns the error without its url.Error wrapper, which would name the request again.
func cause(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
