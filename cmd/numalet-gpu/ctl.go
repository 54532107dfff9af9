package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/deviceplugin/gpu/mock"
)

// ctlTimeout bounds how long an order may take.
const ctlTimeout = 10 * time.Second

// newCtlCommand returns "numalet-gpu ctl", which gives an order to a plugin that runs with --mock.
func newCtlCommand() *cobra.Command {
	var orders string
	cmd := &cobra.Command{
		Use:   "ctl ORDER [GPU] [ARGUMENT...]",
		Short: "Have something happen to the GPUs of a plugin that runs with --mock",
		Long: `Have something happen to the machine of a plugin that runs with --mock and --mock-orders.
The orders are:
` + mock.Orders(),
		Example: "  numalet-gpu ctl --mock-orders /tmp/gpu.sock ecc 3 2\n" +
			"  numalet-gpu ctl --mock-orders /tmp/gpu.sock reset 3",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return errors.New("name an order, such as numalet-gpu ctl --mock-orders SOCKET ecc 3 2; numalet-gpu ctl " +
				"--help lists them")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if orders == "" {
				return errors.New("--mock-orders is not given: name the socket that the plugin was started with")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), ctlTimeout)
			defer cancel()
			return give(ctx, orders, strings.Join(args, " "))
		},
	}
	cmd.Flags().StringVar(&orders, "mock-orders", "", "the plugin's socket for orders")
	return cmd
}

// give sends an order, and returns why it was not obeyed.
func give(ctx context.Context, path, order string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no plugin listens on %s: start numalet-gpu with --mock MACHINE --mock-orders %[1]s", path)
	case err != nil:
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := fmt.Fprintln(conn, order); err != nil {
		return fmt.Errorf("give the order: %w", err)
	}
	if half, ok := conn.(*net.UnixConn); ok { // the plugin then answers, and closes
		_ = half.CloseWrite()
	}
	answer, err := io.ReadAll(conn)
	if ctx.Err() != nil {
		return fmt.Errorf("the plugin at %s has not answered in %v", path, ctlTimeout)
	}
	if err != nil {
		return fmt.Errorf("read the plugin's answer: %w", err)
	}
	if text := strings.TrimSpace(string(answer)); text != "ok" {
		return errors.New(text)
	}
	return nil
}
