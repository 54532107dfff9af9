package csidriver

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/files"
)

// Order says how calls go wrong. Only the first that fits counts.
type Order struct {
	// Method chooses the calls; empty: all.
	Method string `json:",omitempty"`
	// Times is for how many calls it holds; 0: until it is taken back.
	Times int `json:",omitempty"`
	// Code and Message are the error of the answer.
	Code    codes.Code `json:",omitempty"`
	Message string     `json:",omitempty"`
	// The call waits for Delay before anything, with Hang until the caller is gone.
	Delay time.Duration `json:",omitempty"`
	Hang  bool          `json:",omitempty"`
	// CrashBefore and CrashAfter kill the process, before anything is done or before the answer.
	CrashBefore, CrashAfter bool `json:",omitempty"`
}

func ordersFile(dir string) string { return filepath.Join(dir, "orders.json") }

// Command gives orders to the driver in dir, in place of earlier ones.
func Command(dir string, orders ...Order) error {
	raw, err := json.Marshal(orders)
	if err != nil {
		return err
	}
	return files.Replace(ordersFile(dir), raw)
}

// take returns the order for a call; one more of its times is over, whatever becomes of the driver.
func (d *Driver) take(method string) Order {
	d.mu.Lock()
	defer d.mu.Unlock()
	raw, err := os.ReadFile(ordersFile(d.config.Dir))
	if err != nil {
		return Order{}
	}
	var orders []Order
	if json.Unmarshal(raw, &orders) != nil {
		return Order{}
	}
	for i, o := range orders {
		if o.Times < 0 || cmp.Or(o.Method, method) != method {
			continue
		}
		if o.Times > 0 {
			if orders[i].Times--; orders[i].Times == 0 {
				orders[i].Times = -1
			}
			if err := Command(d.config.Dir, orders...); err != nil {
				return Order{Code: codes.Internal, Message: err.Error()}
			}
		}
		return o
	}
	return Order{}
}

func (o Order) before(ctx context.Context) error {
	if o.CrashBefore {
		crash()
	}
	if o.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if o.Delay > 0 && !await.For(ctx, o.Delay) {
		return ctx.Err()
	}
	if o.Code != codes.OK {
		return status.Error(o.Code, o.Message)
	}
	return nil
}

func (o Order) after() {
	if o.CrashAfter {
		crash()
	}
}

// crash ends the process as kill -9 does.
func crash() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}
