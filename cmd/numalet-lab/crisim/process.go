package crisim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/numalet/numalet/internal/await"
)

// process is a running command.
type process struct {
	ctx            context.Context
	inside         inside
	stdin          io.Reader
	stdout, stderr io.Writer
	resize         <-chan remotecommand.TerminalSize
}

// commands lists the commands of a simulated container.
const commands = "cat, echo, env, exit, false, ls, pwd, sh, size, sleep, true"

// run runs one of the commands, or sh -c with a list of them. It returns the exit code.
func (p *process) run(words []string) int {
	code := 0
	for _, st := range statements(words) {
		var last bool
		if code, last = p.statement(st); last || p.ctx.Err() != nil {
			break
		}
	}
	return code
}

func (p *process) statement(words []string) (code int, last bool) {
	if len(words) == 0 {
		return 0, false
	}
	out := p.stdout
	if n := len(words); words[n-1] == ">&2" {
		words, out = words[:n-1], p.stderr
	}
	args := words[1:]
	switch path.Base(words[0]) {
	case "true":
	case "false":
		return 1, false
	case "echo":
		p.say(out, strings.Join(args, " ")+"\n")
	case "cat":
		return p.cat(out, args), false
	case "ls":
		return p.ls(out, args), false
	case "env", "printenv":
		return p.printEnv(out, args), false
	case "pwd":
		p.say(out, "/\n")
	case "size":
		for size := range p.resize {
			p.say(out, fmt.Sprintf("%dx%d\n", size.Width, size.Height))
		}
	case "sleep":
		d, err := time.ParseDuration(words[len(words)-1] + "s")
		if err != nil {
			return 1, false
		}
		await.For(p.ctx, d)
	case "exit":
		if len(args) == 0 {
			return 0, true
		}
		n, err := strconv.ParseUint(args[0], 10, 8)
		if err != nil {
			return 2, true
		}
		return int(n), true
	default:
		p.say(p.stderr, fmt.Sprintf("%s: not found: this container is simulated and runs no program; it knows %s\n",
			words[0], commands))
		return 127, true
	}
	return 0, false
}

// cat writes files of the container's mounts, or its input.
func (p *process) cat(out io.Writer, files []string) (code int) {
	if len(files) == 0 {
		if p.stdin != nil && out != nil {
			_, _ = io.Copy(out, p.stdin) // an error means that the client has gone
		}
		return 0
	}
	for _, file := range files {
		text, err := p.inside.read(file)
		if err != nil {
			p.say(p.stderr, fmt.Sprintf("cat: %s: %v\n", file, err))
			code = 1
			continue
		}
		p.say(out, string(text))
	}
	return code
}

// ls writes the names in directories of the container's mounts, one a line. Flags do not change that.
func (p *process) ls(out io.Writer, args []string) (code int) {
	var dirs []string
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			dirs = append(dirs, arg)
		}
	}
	if len(dirs) == 0 {
		dirs = []string{"/"}
	}
	for _, dir := range dirs {
		names, err := p.inside.list(dir)
		if err != nil {
			p.say(p.stderr, fmt.Sprintf("ls: %s: %v\n", dir, err))
			code = 1
		}
		for _, name := range names {
			p.say(out, name+"\n")
		}
	}
	return code
}

// printEnv writes the container's variables, or the values of those that are named.
func (p *process) printEnv(out io.Writer, names []string) (code int) {
	for _, kv := range p.inside.env {
		if len(names) == 0 {
			p.say(out, kv+"\n")
		}
	}
	for _, name := range names {
		found := false
		for _, kv := range p.inside.env {
			if value, is := strings.CutPrefix(kv, name+"="); is && !found {
				p.say(out, value+"\n")
				found = true
			}
		}
		if !found {
			code = 1
		}
	}
	return code
}

func isShell(word string) bool {
	switch path.Base(word) {
	case "sh", "bash", "ash":
		return true
	}
	return false
}

// shell reads commands from the input until it ends or they say exit. It says first that nothing here is
// real. A terminal's input is echoed, as nothing else does.
func (p *process) shell(container string, tty bool) (code int) {
	if tty {
		p.say(p.stdout, fmt.Sprintf("container %s is simulated and runs no program; this shell knows %s\n",
			container, commands))
	}
	in := bufio.NewReader(p.stdin)
	for p.ctx.Err() == nil {
		if tty {
			p.say(p.stdout, "/ # ")
		}
		line, err := p.readLine(in, tty)
		if strings.TrimSpace(line) != "" {
			for _, st := range statements([]string{"sh", "-c", line}) {
				inner := *p
				inner.stdin = strings.NewReader("") // the rest of the input is for the shell
				var last bool
				if code, last = inner.statement(st); last && code != 127 {
					return code
				}
			}
		}
		if err != nil {
			return code
		}
	}
	return code
}

// readLine reads a line of at most mostLine bytes. A terminal sends single characters.
func (p *process) readLine(in *bufio.Reader, tty bool) (string, error) {
	var line []byte
	for {
		b, err := in.ReadByte()
		switch {
		case err != nil:
			return string(line), err
		case b == 4 && tty: // Ctrl-D
			return string(line), io.EOF
		case b == '\n' || b == '\r' && tty:
			if tty {
				p.say(p.stdout, "\r\n")
			}
			return string(line), nil
		case (b == 127 || b == 8) && tty:
			if len(line) > 0 {
				line = line[:len(line)-1]
				p.say(p.stdout, "\b \b")
			}
		case len(line) < mostLine:
			line = append(line, b)
			if tty {
				p.say(p.stdout, string(rune(b)))
			}
		}
	}
}

// mostLine bounds a line for the shell.
const mostLine = 4 << 10

func (p *process) say(to io.Writer, text string) {
	if to != nil {
		_, _ = io.WriteString(to, text)
	}
}
