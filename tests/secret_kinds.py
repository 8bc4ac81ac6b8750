"""Secrets that look real and are made up when a test runs, and what must stay readable.

No secret stands here in one piece, so that no scanner takes this file for leaky.
"""

import base64
import random
import string
from dataclasses import dataclass

LETTERS = string.ascii_letters
WORD = LETTERS + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits


@dataclass(frozen=True)
class Planted:
    """A text around one secret, and what the text is without it."""

    name: str
    kind: str
    before: str
    secret: str
    after: str
    placeholder: str

    @property
    def text(self) -> str:
        return self.before + self.secret + self.after

    @property
    def masked(self) -> str:
        return self.before + self.placeholder + self.after


def fill(n: int, letters: str = WORD, *, seed: int = 1) -> str:
    """Letters that look random, with a digit and a letter among the first."""
    drawn = random.Random(f"{seed}{n}{letters}").choices(letters, k=n)
    fixed = "".join(letter for letter in "7a" if letter in letters)
    return (fixed + "".join(drawn))[:n]


# Service -> its key in pieces: what is known of it, and what varies.
KEYS = {
    "age": "AGE-SECRET" + "-KEY-1" + fill(58, UPPER),
    "Airtable": "pa" + "t" + fill(14) + "." + fill(64, HEX),
    "Alibaba": "LT" + "AI" + fill(20),
    "Anthropic": "sk-" + "ant-api03-" + fill(90),
    "Atlassian": "AT" + "ATT3" + fill(180),
    "AWS": "AK" + "IA" + fill(16, UPPER),
    "AWS session": "AS" + "IA" + fill(16, UPPER),
    "Azure client secret": fill(3) + "8" + "Q~" + fill(34),
    "Buildkite": "bk" + "ua_" + fill(40, HEX),
    "AWS Bedrock": "bedrock-api" + "-key-" + fill(100),
    "Cerebras": "cs" + "k-" + fill(48, "abc123xyz"),
    "crates.io": "ci" + "o" + fill(32),
    "Cursor": "ke" + "y_" + fill(64, HEX),
    "Jina": "ji" + "na_" + fill(60),
    "Neon": "na" + "pi_" + fill(64, "abcdefgh0123456789"),
    "NuGet": "oy" + "2" + fill(43, "abcdefgh0123456789"),
    "PostHog": "ph" + "x_" + fill(43),
    "Resend": "re" + "_" + fill(8) + "_" + fill(24),
    "Slack cookie": "xo" + "xd-" + fill(60) + "%2B" + fill(20) + "%3D",
    "Stripe, organization": "sk_" + "org_live_" + fill(40),
    "Tailscale": "tskey" + "-auth-" + fill(16) + "CNTRL-" + fill(32),
    "Voyage": "p" + "a-" + fill(43),
    "CircleCI": "CCIP" + "AT_" + fill(22) + "_" + fill(40, HEX),
    "Databricks": "da" + "pi" + fill(32, HEX),
    "DigitalOcean": "do" + "p_v1_" + fill(64, HEX),
    "Discord bot": "M" + fill(23) + "." + fill(6) + "." + fill(27),
    "Docker": "dckr" + "_pat_" + fill(27),
    "Doppler": "dp." + "pt." + fill(43),
    "Dynatrace": "dt0" + "c01." + fill(24, UPPER) + "." + fill(64, UPPER),
    "E2B": "e2" + "b_" + fill(40, HEX),
    "Figma": "fi" + "gd_" + fill(40),
    "GitHub": "gh" + "p_" + fill(36),
    "GitHub app": "gh" + "s_" + fill(36),
    "GitHub, fine-grained": "github" + "_pat_" + fill(22) + "_" + fill(59),
    "GitLab": "gl" + "pat-" + fill(20),
    "GitLab runner": "gl" + "rt-" + fill(20),
    "Google": "AI" + "za" + fill(35),
    "Google client secret": "GOC" + "SPX-" + fill(28),
    "Google OAuth": "ya" + "29." + fill(60),
    "Grafana": "gl" + "sa_" + fill(32) + "_" + fill(8, HEX),
    "Groq": "gs" + "k_" + fill(52),
    "Hugging Face": "h" + "f_" + fill(34),
    "JFrog": "AK" + "Cp" + fill(69),
    "LangSmith": "lsv2" + "_pt_" + fill(32, HEX) + "_" + fill(10, HEX),
    "Linear": "lin" + "_api_" + fill(40),
    "Mailchimp": fill(32, HEX) + "-u" + "s12",
    "Mailgun": "key" + "-" + fill(32, HEX),
    "New Relic": "NR" + "AK-" + fill(27, UPPER),
    "Notion": "nt" + "n_" + fill(46),
    "npm": "np" + "m_" + fill(36),
    "NVIDIA": "nv" + "api-" + fill(64),
    "OpenAI": "s" + "k-" + fill(48),
    "OpenAI project": "sk-" + "proj-" + fill(74) + "T3Blbk" + "FJ" + fill(40),
    "OpenRouter": "sk-" + "or-v1-" + fill(64, HEX),
    "Perplexity": "pp" + "lx-" + fill(48),
    "Pinecone": "pc" + "sk_" + fill(60),
    "Postman": "PM" + "AK-" + fill(24, HEX) + "-" + fill(34, HEX),
    "Pulumi": "pu" + "l-" + fill(40, HEX),
    "PyPI": "py" + "pi-AgEIcHlwaS5vcmc" + fill(60),
    "Replicate": "r" + "8_" + fill(37),
    "RubyGems": "ruby" + "gems_" + fill(48, HEX),
    "SendGrid": "S" + "G." + fill(22) + "." + fill(43),
    "Sentry": "sntr" + "ys_" + fill(60),
    "Shopify": "shp" + "at_" + fill(32, HEX),
    "Slack bot": "xo" + "xb-" + fill(12, "0123456789") + "-" + fill(24),
    "Slack app": "xa" + "pp-1-" + fill(11, UPPER) + "-" + fill(40, HEX),
    "Square": "sq" + "0csp-" + fill(43),
    "Stripe": "sk" + "_live_" + fill(24),
    "Stripe, restricted": "rk" + "_live_" + fill(24),
    "Stripe webhook": "wh" + "sec_" + fill(32),
    "Supabase": "sb" + "p_" + fill(40, HEX),
    "Tavily": "tv" + "ly-" + fill(32),
    "Telegram": fill(10, "0123456789") + ":A" + "A" + fill(33),
    "Terraform": fill(14) + "." + "atlasv1." + fill(60),
    "Twilio": "S" + "K" + fill(32, HEX),
    "Vault": "hv" + "s." + fill(24),
    "xAI": "xa" + "i-" + fill(80),
}  # fmt: skip

JWT = "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxIn0." + fill(43)
PEM = "-----BEGIN {} KEY-----\n" + fill(64) + "\n" + fill(64, seed=2) + "\n-----END {} KEY-----"
PASSWORD, WORDS = "hunter" + "22", "correct" + "horse"
TOKEN = fill(40, HEX)
BASIC = base64.b64encode(b"ann:" + PASSWORD.encode()).decode()

_NAMED = [
    # name, before, secret, after
    ("environment", "DB_PASS=", PASSWORD, " python app.py"),
    ("environment, with signs", "export DB_PASSWORD=", "p&a,s;s" + "w0", "\n"),
    ("environment, quoted", 'SECRET_KEY="', "two words " + PASSWORD, '"'),
    ("JSON, words", '{"password": "', "no more 4" + "secrets", '"}'),
    ("JSON in JSON, words", '{\\"password\\": \\"', "no more 4" + "secrets", '\\"}'),
    ("quoted, words", "password='", "on the hill " + "7", "'"),
    ("quoted, like a word", '{"password": "', "string theory " + "42!", '"}'),
    ("quoted, another quote", '{"password": "', "no'more" + "4", '"}'),
    ("quoted, escaped quote", '{"password": "', 'no\\"' + "more4", '"}'),
    ("quoted flag, words", "tool --password '", "on the hill " + "7", "' x"),
    ("password=", "login failed: password=", PASSWORD, ", user=ann"),
    ("password without a digit", "cannot log in with password=", WORDS, " today"),
    ("password:", "password: ", PASSWORD, "."),
    ("connection string", "Server=db;User Id=sa;Password=", "Pa55" + "word", ";Encrypt=true"),
    ("Azure storage", "AccountName=x;AccountKey=", fill(86) + "==", ";EndpointSuffix=core"),
    ("Azure OpenAI", "AZURE_OPENAI_API_KEY=", TOKEN[:32], " is set"),
    ("api-key header", "api-key: ", TOKEN[:32], "\r\nHost: x"),
    ("X-Api-Key", "-H 'X-Api-Key: ", TOKEN, "' x"),
    ("GitLab header", "PRIVATE-TOKEN: ", fill(20), ""),
    ("JSON", '{"password": "', 'a, b}' + PASSWORD, '", "n": 1}'),
    ("JSON in JSON", '{\\"client_secret\\": \\"', fill(24), '\\"}'),
    ("JSON key", '"api_key":"', "x1y2" + "z3w4", '"'),
    ("keyword argument", "connect(host='x', password='", WORDS, "')"),
    ("camel case", "dbPassword=", PASSWORD, " x"),
    ("AWS secret", "aws_secret_access_key = ", fill(40, WORD + "/+"), "\n"),
    ("session token", "AWS_SESSION_TOKEN=", fill(120), ""),
    ("access_token in a link", "https://x.io/cb?access_token=", fill(30), "&state=1"),
    ("token in a link", "https://x.io/cb?token=", fill(30), "&state=1"),
    ("token:", "token: ", TOKEN, " was refused"),
    ("npmrc", "//registry.example/:_authToken=", fill(36), "\n"),
    ("Shared access signature", "?sv=2022&se=2030&sig=", fill(40) + "%3D", "&sp=r"),
    ("signed link", "?X-Amz-Expires=1&X-Amz-Signature=", fill(64, HEX), "&x=1"),
    ("flag with a space", "psql --password ", WORDS, " -h db"),
    ("flag with =", "psql --db-password=", PASSWORD, " -h db"),
    ("quoted flag", 'tool --password "', PASSWORD, '" x'),
    ("token flag", "gh auth --token ", fill(30), " x"),
    ("api key flag", "tool --api-key ", fill(30), " x"),
    ("curl", "curl -s -u ann:", PASSWORD, " https://x.io"),
    ("mysql", "mysql -h db -u root -p", PASSWORD, " shop"),
    ("sshpass", "sshpass -p ", PASSWORD, " ssh ann@x"),
    ("docker login", "docker login -u ann -p ", PASSWORD, " registry.example"),
    ("netrc", "machine x.io login ann password ", WORDS, "\n"),
    ("SQL", "CREATE USER ann IDENTIFIED BY '", WORDS, "'"),
    ("XML", "<password>", WORDS, "</password>"),
    ("prose", "the password is ", PASSWORD, ", do not tell"),
    ("token in prose", "invalid token ", TOKEN, " for x"),
    ("login of Docker", '{"auths": {"https://index.docker.io/v1/": {"auth": "', BASIC, '"}}}'),
    ("login of Docker in JSON", '{\\"auth\\": \\"', BASIC, '\\"}'),
    ("DSN of Go", "sql.Open ann:", PASSWORD + "!x", "@tcp(db:3306)/shop"),
    (".pgpass", "db.example:5432:shop:ann:", PASSWORD, "\n"),
    (".pgpass, any", "*:*:*:postgres:", WORDS, "\n"),
    ("htpasswd", "ann:", "$2" + "y$05$" + fill(53), "\n"),
    ("htpasswd, MD5", "ann:", "$ap" + "r1$" + fill(8) + "$" + fill(22), " x"),
    ("WordPress", "define('AUTH_SALT', '", "p&a,s;s" + "w0 |x", "');"),
    ("WordPress, database", 'define( "DB_PASSWORD", "', WORDS, '" );'),
    ("mysqli", 'mysqli_connect("db", "ann", "', WORDS, '", "shop")'),
    ("mysqli, object", "new mysqli($host, $user, '", WORDS, "')"),
    ("mnemonic", 'mnemonic: "', " ".join(["abandon"] * 11 + ["about"]), '"'),
    ("session cookie in a link", "JSESSIONID=", fill(32, UPPER + "a"), "; x"),
]  # fmt: skip

_OTHERS = [
    # name, kind, before, secret, after
    ("RSA", "private key", "a ", PEM.format("RSA PRIVATE", "RSA PRIVATE"), " b"),
    ("PKCS 8", "private key", "a ", PEM.format("PRIVATE", "PRIVATE"), " b"),
    ("OpenSSH", "private key", "", PEM.format("OPENSSH PRIVATE", "OPENSSH PRIVATE"), "\n"),
    ("PGP", "private key", "x ",
     PEM.format("PGP PRIVATE", "PGP PRIVATE").replace("KEY-----", "KEY BLOCK-----"), " y"),
    ("cut off", "private key", "x ", PEM.format("PRIVATE", "")[:60], ""),
    ("in JSON", "private key", '{"k":"',
     PEM.format("PRIVATE", "PRIVATE").replace("\n", "\\n"), '"}'),
    ("JWT", "JSON web token", "auth ", JWT, "!"),
    ("bearer", "bearer token", "Authorization: Bearer ", fill(40), "\n"),
    ("authorization token", "bearer token", "Authorization: token ", TOKEN, " x"),
    ("basic", "bearer token", '"Authorization": "Basic ', BASIC, '"'),
    ("bot", "bearer token", "authorization: Bot ", fill(20), " x"),
    ("no scheme", "bearer token", "Authorization: ", TOKEN, " x"),
    ("Okta", "bearer token", "called with SSWS ", "00" + fill(40), " x"),
    ("bearer in prose", "bearer token", "sent bearer ", TOKEN, " to x"),
    ("digest", "bearer token", "Authorization: Digest ",
     f'username="ann", response="{TOKEN}"', "\nx"),
    ("Cookie", "cookie", "Cookie: ", f"session={fill(30)}; theme=dark", "\r\nHost: x"),
    ("Set-Cookie", "cookie", "Set-Cookie: ", f"sid={fill(30)}; Path=/; HttpOnly", "\n"),
    ("Slack", "webhook", "POST https://hooks.slack.com/services/",
     f"T{fill(8, UPPER)}/B{fill(8, UPPER)}/{fill(24)}", " 404"),
    ("Discord", "webhook", "https://discord.com/api/webhooks/",
     f"{fill(18, '0123456789')}/{fill(68)}", ""),
    ("URL", "password in a URL", "https://", f"ann:{PASSWORD}@", "host/x"),
    ("URL, slash", "password in a URL", "postgres://", "ann:s3/cr" + "et?x@", "host:5432/db"),
    ("URL, at sign", "password in a URL", "redis://", ":p@ss" + "w0rd@", "host:6379/0?a=b"),
    ("URL, token", "password in a URL", "https://", fill(32, HEX) + "@", "sentry.example/1"),
    ("address", "e-mail address", "to ", "ann.lee@example.org", ","),
    ("Linux", "home directory", "/home/", "ann", "/x.py"),
    ("macOS", "home directory", "/Users/", "ann", " x"),
    ("Windows", "home directory", "C:\\Users\\", "ann", "\\x"),
]  # fmt: skip


def planted() -> list[Planted]:
    """One text for each kind of secret, and each service."""
    from stateanalytics.core.redaction import PLACEHOLDERS

    keys = [(name, "API key", "rejected: ", key, " (401)") for name, key in KEYS.items()]
    named = [(name, "named secret", *parts) for name, *parts in _NAMED]
    return [Planted(*case, PLACEHOLDERS[case[1]]) for case in keys + named + _OTHERS]


READABLE = [
    "run.failed.exception",
    "Exit code 137 from pytest",
    "task-force-of-the-north-and-south",
    "unexpected token: identifier",
    "SyntaxError: Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON",
    "c719e353-ed34-4947-8ec3-d0a3a988adac",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b on main",
    "sha256:" + "ab12" * 16,
    "model claude-sonnet-4 of provider anthropic",
    "2026-05-27T00:00:00Z",
    "max_tokens: 128000, input_tokens=4096, total_tokens = 12",
    "token_count=12345 prompt_tokens=3000",
    "session_id=ses_01J8ZK3V9QX and run_id=run-20260527",
    "Failed password for root from 10.0.0.1 port 22 ssh2",
    "password is required", "the --password option needs a value", "--token is missing",
    "password: str = None", "password=None", '{"password": "none"}', "password='hidden' x",
    '{\\"password\\": \\"none\\"}', 'password="required', '--password "none" x',
    "api_key=os.environ['OPENAI_API_KEY']",
    "token = self.next_token()", "secret: ${{ secrets.NPM_TOKEN }}", "DB_PASSWORD=$DB_PASSWORD",
    "PASS: tests/test_token1.py", "password=********", "PWD=/repo/run1 OLDPWD=/repo",
    "git@github.com:owner/repository.git", "http://localhost:8080/@scope/package",
    "GET http://example.org:8080/path?x=1", "Basic authentication failed",
    "Bearer authentication is required", "Unauthorized: no authorization header",
    "cache_key=users:42 primary_key=id", "KeyError: 'token'", "cookie: none",
    "docker run -p 8080:80 image", "mkdir -p build/out",
    "x-request-id: req_011CSHoEeqs5C35K2UUqR7Fy",
    "cache_key_" + "ab12" * 16, "pa-" + "north-and-south-" * 2, "re_compile_all_the_patterns",
    "src/app.py:10:5:E501:line-too-long", "host:5432:refused", "arn:aws:logs:*:*:log-group:*:*",
    '{"auth": "required"}', '{"auth": "authenticated"}', '{"auth": "oauth2ClientCredentials"}',
    "perl -pe 's/(a)(b)/$2$1/'", "costs $2 or $5 a day", "define('CACHE_KEY', 'users')",
    "dial(ctx)@tcp(h:1)", "listen ann@tcp(db:3306)", "the mnemonic is easy to remember",
    "recovery phrase: not set", "mysqli_connect($host, $user, $password)", "stat: cioXYZ",
    "credentials: include", "scp file host:/tmp", "npm ERR! code E401 _auth",
    "Error: secret not found: my-secret", "key: value", "foreign key constraint failed",
]  # fmt: skip
