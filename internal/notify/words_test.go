package notify

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnlink(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain words. And more.":             "plain words. And more.",
		"e.g. this costs 1.50":               "e.g. this costs 1.50",
		"https://evil.example/x":             "https[://]evil[.]example/x",
		"a.b.example.com":                    "a.b[.]example[.]com",
		"mail carol@example.com":             "mail carol[@]example[.]com",
		"evil．example evil。example evil｡com": "evil[．]example evil[。]example evil[｡]com",
		"javascript://x":                     "javascript[://]x",
	} {
		require.Equal(t, want, unlink(in), in)
	}
}

func TestQuoteLinesMarksEveryLine(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"short", "one\n\ntwo", strings.Repeat("word ", 100), strings.Repeat("x", 500), ""} {
		joined := ""
		for line := range strings.SplitSeq(strings.TrimSuffix(quoteLines(text), "\n"), "\n") {
			require.True(t, strings.HasPrefix(line, ">"), "%q", line)
			require.LessOrEqual(t, len([]rune(line)), quoteWidth+2)
			joined += strings.TrimPrefix(strings.TrimPrefix(line, ">"), " ")
		}
		squeeze := strings.NewReplacer(" ", "", "\n", "")
		require.Equal(t, squeeze.Replace(text), squeeze.Replace(joined), "nothing is lost")
	}
}
