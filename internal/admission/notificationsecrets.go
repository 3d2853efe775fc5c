package admission

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// With these keys of a Secret, a Provider of Flux or Flagger sends to another address than the address in
// its spec. A GitHub App gets its token from githubAppBaseURL.
const (
	keyAddress = "address"
	keyProxy   = "proxy"
	keyHeaders = "headers"
	keyApp     = "githubAppBaseURL"
)

// maxHeaders is the maximum length of the headers in a Secret, in bytes.
const maxHeaders = 4096

// notificationSecrets returns the rule that checks the addresses and headers in the Secret of a Provider
// against the same lists as the Provider's spec. It covers every Secret with such a key: a Provider may
// name any Secret later.
func notificationSecrets() Rule {
	allowed := posture + ".notifications"
	addresses := "(has(" + allowed + ".addresses) && size(" + allowed + ".addresses) > 0 ? " + list(allowed+".addresses") + " : 'https addresses outside of the cluster')"
	// Messages do not show the value, which may be confidential.
	const subject, otherwise = "'Secret ' + variables.name + ' ", "; if it is for no Provider, give the key another name'"
	changed := func(key string) string {
		return fmt.Sprintf("has(object.data) && '%[1]s' in object.data && !(oldObject != null && has(oldObject.data) && '%[1]s' in oldObject.data && oldObject.data['%[1]s'] == object.data['%[1]s'])", key)
	}
	var changes []string
	for _, key := range []string{keyAddress, keyProxy, keyHeaders, keyApp} {
		changes = append(changes, changed(key))
	}
	line := "l.matches('^[A-Za-z0-9-]+: +[ -~]*$') && has(" + allowed + ".headers) && " + allowed + ".headers.exists(h, h.lowerAscii() == l.split(':')[0].lowerAscii())"
	return Rule{
		Name: Prefix + "notification-secrets", Rows: []string{"N5"},
		Title:      "Secrets direct Providers to approved addresses only",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "secrets")},
		scope:      tenantObjects,
		conditions: append([]string{join(changes, " || ")}, notThePlatform...),
		variables: []admissionregistrationv1.Variable{
			{Name: "characters", Expression: characters},
			decoded(keyAddress, keyAddress),
			// The DSN of Sentry has a public key in the place of the user name.
			{Name: "target", Expression: "variables.address.matches('^https://[A-Za-z0-9]{1,64}@') ? 'https://' + variables.address.substring(variables.address.indexOf('@') + 1) : variables.address"},
			decoded("app", keyApp),
			decoded(keyHeaders, keyHeaders),
		},
		validations: []validation{
			{fmt.Sprintf("!(%s) || variables.target == '' || %s", changed(keyAddress), outside("variables.target", allowed+".addresses")),
				subject + "must not send a Provider elsewhere in its key " + keyAddress + " (allowed: ' + " + addresses + " + ')" + otherwise},
			{fmt.Sprintf("!(%s) || variables.app == '' || %s", changed(keyApp), outside("variables.app", allowed+".addresses")),
				subject + "must not send a Provider elsewhere in its key " + keyApp + " (allowed: ' + " + addresses + " + ')'"},
			{fmt.Sprintf("!(%s)", changed(keyProxy)),
				subject + "must not make a Provider post through a proxy in its key " + keyProxy + ": leave it out" + otherwise},
			{fmt.Sprintf("!(%s) || size(variables.headers) <= %d && variables.headers.split('\\n').all(l, l == '' || %s)", changed(keyHeaders), maxHeaders, line),
				subject + "must not make a Provider send other headers in its key " + keyHeaders + " (allowed, one to a line as NAME: VALUE: ' + " + list(allowed+".headers") + " + ')" + otherwise},
		},
	}
}

// base64Digits are the digits of the standard base64 encoding (RFC 4648, section 4), in which the API
// server shows the data of a Secret.
const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// decoded returns a variable for the text of a key of a Secret; the text is empty if the key is missing.
// CEL has no function for base64: the variable looks up four digits at a time, and then the three
// characters that they encode. Bytes other than printable ASCII and white space become a character that no
// address and no header contains.
func decoded(name, key string) admissionregistrationv1.Variable {
	at := func(i int) string { return fmt.Sprintf("digits[i+%d]", i) }
	character := func(code string) string { return "variables.characters.charAt(" + code + ")" }
	return admissionregistrationv1.Variable{Name: name, Expression: fmt.Sprintf("[has(object.data) && '%[1]s' in object.data && object.data['%[1]s'] != null ? object.data['%[1]s'].split('').map(c, '%[2]s'.indexOf(c)) : []]", key, base64Digits) +
		fmt.Sprintf(".map(digits, digits.transformList(i, d, i %% 4 == 0, %s + (%s < 0 ? '' : %s) + (%s < 0 ? '' : %s)).join('').trim())[0]",
			character("d * 4 + "+at(1)+" / 16"),
			at(2), character(at(1)+" % 16 * 16 + "+at(2)+" / 4"),
			at(3), character(at(2)+" % 4 * 64 + "+at(3)))}
}

// characters is a CEL string of 256 characters. Each printable or white space byte is at its own index; DEL
// is at all other indexes.
var characters = func() string {
	var b strings.Builder
	for c := range 256 {
		switch {
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c >= ' ' && c <= '~':
			b.WriteByte(byte(c))
		default:
			b.WriteString(`\u007f`)
		}
	}
	return "'" + b.String() + "'"
}()
