//! Who may do what at `dipc serve`: tokens of a file, certificates, and users of this machine. Each
//! is a way in; without any of them everybody may do everything.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use dipc::{Error, PeerCertificate, Request, Status, Verb};
use glob::Pattern;
use parking_lot::RwLock;
use ring::hmac;
use ring::rand::SystemRandom;
use tracing::{info, warn};

use crate::trust::{AUTHORIZATION, BEARER};

/// Arguments of `dipc serve`.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct AccessArgs {
    /// Admit requests with a token of this file. A line of it is NAME TOKEN VERBS TICKET...: the
    /// verbs get (which includes list and describe), put, exchange, with commas between them, or *
    /// for all, and tickets or patterns of them; # begins a comment. Read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Admit clients whose certificate has this subject (CN=alice) or alternative name
    /// (DNS:a.example, URI:spiffe://…), for every verb and ticket; may be given several times
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub allow_subject: Vec<String>,

    /// Admit processes of this user, by shm, for every verb and ticket; others can connect then,
    /// and are refused. Name your own too, if it shall be admitted. Clients of another user need
    /// --any-user. May be given several times
    #[arg(long, value_name = "UID")]
    pub allow_uid: Vec<u32>,
}

/// What one server admits.
pub struct Access {
    tokens: RwLock<Vec<Token>>,
    file: Option<PathBuf>,
    subjects: Vec<String>,
    uids: Vec<u32>,
    /// Tokens are compared by their authentication codes under this key. So the time of a
    /// comparison does not depend on the token.
    key: hmac::Key,
}

/// What comes with a request.
pub struct Asker<'a> {
    /// The header `authorization`.
    pub authorization: Option<&'a [u8]>,
    pub certificate: Option<&'a PeerCertificate>,
    /// The user, if the client is of this machine.
    pub uid: Option<u32>,
}

struct Token {
    name: String,
    code: hmac::Tag,
    verbs: Vec<Verb>,
    tickets: Vec<Pattern>,
}

impl Access {
    /// The access that the arguments describe; `None`: the arguments restrict nothing.
    pub fn new(args: &AccessArgs) -> Result<Option<Self>> {
        if args.token_file.is_none() && args.allow_subject.is_empty() && args.allow_uid.is_empty() {
            return Ok(None);
        }
        for name in &args.allow_subject {
            if !name.contains(['=', ':']) {
                bail!(
                    "--allow-subject {name}: give the subject as the certificate has it \
                     (CN={name}), or an alternative name with its kind (DNS:{name})"
                );
            }
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| anyhow!("the system gives no random bytes"))?;
        let access = Self {
            tokens: RwLock::default(),
            file: args.token_file.clone(),
            subjects: args.allow_subject.clone(),
            uids: args.allow_uid.clone(),
            key,
        };
        access.reload()?;
        Ok(Some(access))
    }

    /// Reads the file again. If it cannot be read everything stays as it was.
    pub fn reload(&self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let tokens = self.read(file)?;
        info!(count = tokens.len(), "tokens are read");
        *self.tokens.write() = tokens;
        Ok(())
    }

    fn read(&self, file: &Path) -> Result<Vec<Token>> {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the tokens of {shown}"))?;
        let mut tokens: Vec<Token> = Vec::new();
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            // A word that begins with # starts a comment.
            let words: Vec<_> = line
                .split_whitespace()
                .take_while(|word| !word.starts_with('#'))
                .collect();
            if words.is_empty() {
                continue;
            }
            let token = self
                .token(&words)
                .with_context(|| format!("line {number} of {shown}"))?;
            if let Some(other) = tokens
                .iter()
                .find(|other| other.code.as_ref() == token.code.as_ref())
            {
                bail!(
                    "line {number} of {shown}: {} has the token of {}; give each token once",
                    token.name,
                    other.name
                );
            }
            tokens.push(token);
        }
        if tokens.is_empty() {
            warn!("there is no token in {shown}: it admits nobody");
        }
        Ok(tokens)
    }

    fn token(&self, words: &[&str]) -> Result<Token> {
        let [name, token, verbs, tickets @ ..] = words else {
            bail!("it is not NAME TOKEN VERBS TICKET...");
        };
        let tickets = tickets.iter().map(|word| {
            Pattern::new(word).with_context(|| format!("{word} is no pattern of tickets"))
        });
        let tickets = tickets.collect::<Result<Vec<_>>>()?;
        if tickets.is_empty() {
            bail!("it names no ticket; * stands for every one");
        }
        Ok(Token {
            name: (*name).to_owned(),
            code: hmac::sign(&self.key, token.as_bytes()),
            verbs: verbs
                .split(',')
                .map(verbs_of)
                .collect::<Result<Vec<_>>>()?
                .concat(),
            tickets,
        })
    }

    /// The name of the client, if it may do what it asks for.
    ///
    /// # Errors
    ///
    /// `Permission`.
    pub fn check(&self, asker: &Asker<'_>, verb: Verb, ticket: &[u8]) -> Result<String, Error> {
        if let Some(uid) = asker.uid.filter(|uid| self.uids.contains(uid)) {
            return Ok(format!("uid {uid}"));
        }
        if let Some(certificate) = asker.certificate
            && self
                .subjects
                .iter()
                .any(|name| certificate.subject == *name || certificate.names.contains(name))
        {
            return Ok(certificate.subject.clone());
        }
        let refused = |text: String| Err(Error::new(Status::Permission, text));
        let given = asker.authorization.and_then(token_in);
        let Some(given) = given else {
            return refused(match self.file {
                Some(_) => format!(
                    "this server asks for a token: the header `{AUTHORIZATION}: {BEARER}TOKEN` \
                     (dipc --token-file FILE)"
                ),
                None => "this server does not admit this client".to_owned(),
            });
        };
        let tokens = self.tokens.read();
        let known = tokens
            .iter()
            .find(|token| hmac::verify(&self.key, given, token.code.as_ref()).is_ok());
        match known {
            Some(token) if token.allows(verb, ticket) => Ok(token.name.clone()),
            Some(token) => refused(format!(
                "the token of {} does not allow {} {}",
                token.name,
                verb.name(),
                if verb == Verb::List {
                    "here"
                } else {
                    "of this ticket"
                }
            )),
            None => refused("this server does not know the token".to_owned()),
        }
    }
}

impl Token {
    fn allows(&self, verb: Verb, ticket: &[u8]) -> bool {
        // Which tickets a list may show is asked for each of them.
        let is_for_all = verb == Verb::List;
        let ticket = String::from_utf8_lossy(ticket);
        self.verbs.contains(&verb)
            && (is_for_all || self.tickets.iter().any(|pattern| pattern.matches(&ticket)))
    }
}

/// The token of a header. The word before it has no case (RFC 9110).
fn token_in(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    scheme
        .eq_ignore_ascii_case(BEARER.as_bytes())
        .then_some(token)
}

/// The verbs that a word in the file allows: a client that may get a table may also list and
/// describe it.
fn verbs_of(word: &str) -> Result<Vec<Verb>> {
    const GET: [Verb; 3] = [Verb::Get, Verb::Describe, Verb::List];
    Ok(match word {
        "get" => GET.to_vec(),
        "put" => vec![Verb::Put],
        "exchange" => vec![Verb::Exchange],
        "*" => [&GET[..], &[Verb::Put, Verb::Exchange]].concat(),
        other => {
            bail!("`{other}` is no verb: get, put, exchange and * are, with commas and no spaces")
        }
    })
}

impl Access {
    /// Decides about a request of libdipc, and names its client.
    ///
    /// # Errors
    ///
    /// `Permission`.
    pub fn authorize(&self, request: &Request<'_>) -> Result<(), Error> {
        let asker = Asker {
            authorization: request.headers().get(AUTHORIZATION),
            certificate: request.certificate(),
            uid: request.process().map(|process| process.uid),
        };
        let name = self.check(&asker, request.verb(), request.ticket())?;
        request.set_principal(&name);
        Ok(())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(text: &str) -> Result<Access> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        std::fs::write(&file, text).unwrap();
        let args = AccessArgs {
            token_file: Some(file),
            allow_subject: vec!["CN=alice".to_owned(), "DNS:bob.example".to_owned()],
            allow_uid: vec![7],
        };
        Access::new(&args).map(Option::unwrap)
    }

    fn check(access: &Access, token: &str, verb: Verb, ticket: &str) -> Option<String> {
        let asker = Asker {
            authorization: Some(token.as_bytes()),
            certificate: None,
            uid: None,
        };
        access.check(&asker, verb, ticket.as_bytes()).ok()
    }

    /// A token allows its verbs for its tickets, and nothing else is a token.
    #[test]
    fn tokens_allow_what_their_lines_say() {
        let access =
            access("# who\n\nann  s3cret get sales-* orders\nloader t0ken put,get *\n").unwrap();
        let ann = Some("ann".to_owned());
        let check = |token: &str, verb, ticket: &str| check(&access, token, verb, ticket);
        assert_eq!(check("Bearer s3cret", Verb::Get, "sales-2026"), ann);
        assert_eq!(check("bearer s3cret", Verb::Describe, "orders"), ann);
        assert_eq!(check("Bearer s3cret", Verb::List, ""), ann);
        assert_eq!(check("Bearer s3cret", Verb::Put, "orders"), None);
        assert_eq!(check("Bearer s3cret", Verb::Get, "staff"), None);
        assert!(check("Bearer t0ken", Verb::Put, "staff").is_some());
        assert_eq!(check("Bearer t0ken", Verb::Exchange, "staff"), None);
        for wrong in [
            "Bearer s3cre",
            "Bearer s3cret2",
            "Bearer ",
            "s3cret",
            "",
            "Basic s3cret",
        ] {
            assert_eq!(check(wrong, Verb::Get, "orders"), None, "{wrong}");
        }
    }

    /// A certificate by its subject or a name, and a user, may do everything.
    #[test]
    fn certificates_and_users_are_ways_in() {
        let access = access("").unwrap();
        let certificate = |subject: &str, name: &str| PeerCertificate {
            subject: subject.to_owned(),
            names: vec![name.to_owned()],
            fingerprint: String::new(),
        };
        let check = |certificate: Option<&PeerCertificate>, uid| {
            let asker = Asker {
                authorization: None,
                certificate,
                uid,
            };
            access.check(&asker, Verb::Put, b"t").is_ok()
        };
        assert!(check(Some(&certificate("CN=alice", "DNS:a")), None));
        assert!(check(Some(&certificate("CN=bob", "DNS:bob.example")), None));
        assert!(!check(Some(&certificate("CN=alice2", "DNS:alice")), None));
        assert!(check(None, Some(7)) && !check(None, Some(0)) && !check(None, None));
    }

    /// The error for a malformed line names the line.
    #[test]
    fn lines_that_are_wrong_are_named() {
        for (text, told) in [
            ("ann s3cret", "line 1"),
            ("\nann s3cret get", "names no ticket"),
            ("ann s3cret take *", "`take` is no verb"),
            ("ann s3cret get # *", "names no ticket"),
            (
                "ann s3cret get *\nbob s3cret get *",
                "bob has the token of ann",
            ),
            ("ann s3cret get [", "no pattern"),
        ] {
            let error = format!("{:#}", access(text).unwrap_err());
            assert!(error.contains(told), "{error}");
        }
    }
}
