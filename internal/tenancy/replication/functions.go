package replication

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// wideFormat matches verbs of a format whose width or precision could make a text long.
var wideFormat = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4}|\*)`)

// aliases are the names that Capsule's documentation has for some of the functions.
var aliases = map[string]string{
	"toYAML": "toYaml", "toJSON": "toJson", "toUpper": "upper", "toLower": "lower", "base64Encode": "b64enc", "base64Decode": "b64dec",
}

// functions returns the functions of templates, with the names and arguments that Helm's templates
// have. Each text that they return is bounded, those of Go's own functions included, and each call
// is a step.
func (s *steps) functions() template.FuncMap {
	text := func(result string) (string, error) {
		if err := s.take(); err != nil {
			return "", err
		}
		if len(result) > maxOutput {
			return "", fmt.Errorf("a text is longer than %d bytes", maxOutput)
		}
		return result, nil
	}
	all := template.FuncMap{
		stepFunction: func() (string, error) { return "", s.take() },

		"print":   func(args ...any) (string, error) { return text(fmt.Sprint(args...)) },
		"println": func(args ...any) (string, error) { return text(fmt.Sprintln(args...)) },
		"printf": func(format string, args ...any) (string, error) {
			if wideFormat.MatchString(format) {
				return "", fmt.Errorf("the format %q makes long texts", format)
			}
			return text(fmt.Sprintf(format, args...))
		},
		"html":     func(args ...any) (string, error) { return text(html.EscapeString(fmt.Sprint(args...))) },
		"js":       func(args ...any) (string, error) { return text(template.JSEscaper(args...)) },
		"urlquery": func(args ...any) (string, error) { return text(url.QueryEscape(fmt.Sprint(args...))) },

		"toString":   func(v any) (string, error) { return text(asText(v)) },
		"quote":      func(v any) (string, error) { return text(strconv.Quote(asText(v))) },
		"squote":     func(v any) (string, error) { return text("'" + asText(v) + "'") },
		"upper":      func(t string) (string, error) { return text(strings.ToUpper(t)) },
		"lower":      func(t string) (string, error) { return text(strings.ToLower(t)) },
		"trim":       func(t string) (string, error) { return text(strings.TrimSpace(t)) },
		"trimPrefix": func(prefix, t string) (string, error) { return text(strings.TrimPrefix(t, prefix)) },
		"trimSuffix": func(suffix, t string) (string, error) { return text(strings.TrimSuffix(t, suffix)) },
		"replace":    func(from, to, t string) (string, error) { return replace(from, to, t, text) },
		"trunc":      func(n int, t string) (string, error) { return text(truncated(n, t)) },
		"indent":     func(n int, t string) (string, error) { return indent(n, t, "", text) },
		"nindent":    func(n int, t string) (string, error) { return indent(n, t, "\n", text) },
		"join": func(separator string, list []any) (string, error) {
			var parts []string
			size := 0
			for _, v := range list {
				parts = append(parts, asText(v))
				if size += len(parts[len(parts)-1]) + len(separator); size > maxOutput {
					break
				}
			}
			return text(strings.Join(parts, separator))
		},
		"contains":  func(part, t string) bool { return strings.Contains(t, part) },
		"hasPrefix": func(prefix, t string) bool { return strings.HasPrefix(t, prefix) },
		"hasSuffix": func(suffix, t string) bool { return strings.HasSuffix(t, suffix) },
		"b64enc":    func(t string) (string, error) { return text(base64.StdEncoding.EncodeToString([]byte(t))) },
		"b64dec": func(t string) (string, error) {
			content, err := base64.StdEncoding.DecodeString(t)
			if err != nil {
				return "", errors.New("b64dec: it is no base64")
			}
			return text(string(content))
		},
		"sha256sum": func(t string) (string, error) {
			sum := sha256.Sum256([]byte(t))
			return text(hex.EncodeToString(sum[:]))
		},
		"toJson": func(v any) (string, error) {
			content, err := json.Marshal(v)
			if err != nil {
				return "", fmt.Errorf("toJson: %w", err)
			}
			return text(string(content))
		},
		"toYaml": func(v any) (string, error) {
			content, err := yaml.Marshal(v)
			if err != nil {
				return "", fmt.Errorf("toYaml: %w", err)
			}
			return text(strings.TrimSuffix(string(content), "\n"))
		},

		"default": func(fallback any, given ...any) any {
			if len(given) == 0 || isEmpty(given[0]) {
				return fallback
			}
			return given[0]
		},
		"coalesce": func(values ...any) any {
			i := slices.IndexFunc(values, func(v any) bool { return !isEmpty(v) })
			if i < 0 {
				return nil
			}
			return values[i]
		},
		"ternary": func(yes, no any, condition bool) any {
			if condition {
				return yes
			}
			return no
		},
		"empty": isEmpty,
		"required": func(message string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(message)
			}
			return v, nil
		},
		"hasKey": func(m map[string]any, key string) bool { _, ok := m[key]; return ok },
		"get":    func(m map[string]any, key string) any { return m[key] },
		"keys":   func(m map[string]any) []any { return anys(slices.Sorted(maps.Keys(m))) },
		"first": func(list []any) any {
			if len(list) == 0 {
				return nil
			}
			return list[0]
		},
		"last": func(list []any) any {
			if len(list) == 0 {
				return nil
			}
			return list[len(list)-1]
		},
		"splitList": func(separator, t string) []any { return anys(strings.Split(t, separator)) },
		"add":       func(a, b int) int { return a + b },
		"sub":       func(a, b int) int { return a - b },
	}
	for alias, name := range aliases {
		all[alias] = all[name]
	}
	return all
}

func asText(v any) string {
	if t, ok := v.(string); ok {
		return t
	}
	return fmt.Sprint(v)
}

func anys(texts []string) []any {
	var all []any
	for _, t := range texts {
		all = append(all, t)
	}
	return all
}

// isEmpty reports whether a value is nothing, false, zero or without contents.
func isEmpty(v any) bool {
	truth, ok := template.IsTrue(v)
	return !ok || !truth
}

func truncated(n int, t string) string {
	switch {
	case n >= 0 && n < len(t):
		return t[:n]
	case n < 0 && -n < len(t):
		return t[len(t)+n:]
	}
	return t
}

// replace checks the length of the result before it makes it.
func replace(from, to, t string, text func(string) (string, error)) (string, error) {
	if len(t)+strings.Count(t, from)*len(to) > 2*maxOutput {
		return "", fmt.Errorf("replace: the result is longer than %d bytes", maxOutput)
	}
	return text(strings.ReplaceAll(t, from, to))
}

func indent(n int, t, first string, text func(string) (string, error)) (string, error) {
	if n < 0 || n > 100 {
		return "", fmt.Errorf("indent: %d is not between 0 and 100", n)
	}
	spaces := strings.Repeat(" ", n)
	return text(first + spaces + strings.ReplaceAll(t, "\n", "\n"+spaces))
}
