// Package control sends orders to simulators and asks for their state: JSON over HTTP on a unix
// socket. A wrong order is answered with status 400 and a line of text.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/numalet/numalet/internal/strictyaml"
)

// Client gives orders over a control socket.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the control socket at path. It connects for each call.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// Get reads what is at route into answer.
func (c *Client) Get(ctx context.Context, route string, answer any) error {
	text, err := c.send(ctx, http.MethodGet, route, nil)
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	return err
}

// Post gives an order.
func (c *Client) Post(ctx context.Context, route string, order any) error {
	body, err := json.Marshal(order)
	if err == nil {
		_, err = c.send(ctx, http.MethodPost, route, body)
	}
	return err
}

// Delete ends what is at route.
func (c *Client) Delete(ctx context.Context, route string) error {
	_, err := c.send(ctx, http.MethodDelete, route, nil)
	return err
}

func (c *Client) send(
	ctx context.Context, method, route string, body []byte,
) (answer []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s on %s: %w", method, route, c.path, err)
		}
	}()
	r, err := http.NewRequestWithContext(ctx, method, "http://sim"+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(answer)))
	}
	return answer, err
}

// maxOrder bounds an order in bytes: ten times a list of a hundred thousand devices.
const maxOrder = 64 << 20

// Order returns a handler that decodes an order strictly and passes it to do.
func Order[T any](do func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var order T
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOrder))
		if err == nil {
			err = strictyaml.UnmarshalJSON(data, &order)
		}
		if err == nil {
			err = do(order)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
}

// Do returns a handler for an order without content.
func Do(do func()) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { do() }
}

// Answer writes a JSON answer.
func Answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // fails only if the client went away
}
