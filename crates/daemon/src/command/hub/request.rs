//! Requests of commands to the hub's HTTP API.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use servicer::Authorities;

use super::super::host::{HostPort, HostPortError, Protection};
use crate::exit::{Exit, Failure, SystemFault};
use crate::http::client::{self, Answer, Request, Stream};
use crate::hub_api;

/// Address of a hub's API, and the key.
#[derive(Args, Clone, Debug)]
pub struct ApiArgs {
    /// Address of the hub's API, as HOST:PORT; with several hubs, those of all, separated by commas.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7480")]
    http: ApiHosts,
    /// File with the API key; `hub key` writes it. To another host it needs --ca.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Uses TLS and trusts the certificates in this file, PEM.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Timeout, seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Addresses of the APIs of one or more hubs.
#[derive(Clone, Debug)]
struct ApiHosts {
    first: HostPort,
    others: Vec<HostPort>,
}

impl ApiHosts {
    fn iter(&self) -> impl Iterator<Item = &HostPort> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl FromStr for ApiHosts {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        let mut hosts = text.split(',').map(str::parse);
        Ok(Self {
            first: hosts.next().unwrap_or(Err(HostPortError::NoPort))?,
            others: hosts.collect::<Result<_, _>>()?,
        })
    }
}

/// Longest response, bytes: a page of the longest mails in base64, or the metrics.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

const HUB: &str = "hub with an API";

impl ApiArgs {
    /// Sends a request, and returns the JSON of a success.
    pub(super) fn json(&self, line: &str, body: Option<&[u8]>) -> Result<Value, Failure> {
        self.json_if(line, None, body)
    }

    /// As [`json`](Self::json), with another header line.
    pub(super) fn json_if(
        &self,
        line: &str,
        header: Option<String>,
        body: Option<&[u8]>,
    ) -> Result<Value, Failure> {
        let bytes = self.answer(line, header, body)?;
        serde_json::from_slice(&bytes).map_err(|_| client::wrong_server(HUB, self.http()))
    }

    /// Returns the arguments for each of the hubs alone.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        self.http.iter().map(|first| Self {
            http: ApiHosts {
                first: first.clone(),
                others: Vec::new(),
            },
            ..self.clone()
        })
    }

    /// Sends a request, to the next hub if it belongs to another; returns the body of a success.
    pub(super) fn bytes(&self, line: &str, body: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
        self.answer(line, None, body)
    }

    fn answer(
        &self,
        line: &str,
        header: Option<String>,
        body: Option<&[u8]>,
    ) -> Result<Vec<u8>, Failure> {
        let headers: Vec<String> = self.authorization()?.into_iter().chain(header).collect();
        let request = Request {
            line,
            headers: &headers,
            body: body.map(|body| ("application/octet-stream", body)),
            timeout: self.timeout(),
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let authorities = self.authorities()?;
        let protection = self.protection(authorities.as_ref());
        let mut refusal = None;
        for http in self.http.iter() {
            let answer = http.send_to(HUB, request, protection)?;
            if (200..300).contains(&answer.status) {
                return Ok(answer.body);
            }
            let is_elsewhere = answer.status == MISDIRECTED;
            refusal = Some(failure(http, &answer));
            if !is_elsewhere {
                break;
            }
        }
        Err(refusal.unwrap_or_else(|| client::wrong_server(HUB, self.http())))
    }

    /// Returns the failure that an error response of the first hub means.
    pub(super) fn failure(&self, answer: &Answer) -> Failure {
        failure(self.http(), answer)
    }

    /// Opens a connection to the first hub.
    pub(super) fn connect(&self) -> Result<Stream, Failure> {
        let authorities = self.authorities()?;
        let protection = self.protection(authorities.as_ref());
        self.http().connect(HUB, self.timeout(), protection)
    }

    /// Returns the header line with the key.
    pub(super) fn authorization(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let token = hub_api::read_token(path)?;
        Ok(Some(format!("Authorization: Bearer {}", *token)))
    }

    /// Returns the address of the first hub.
    pub(super) const fn http(&self) -> &HostPort {
        &self.http.first
    }

    const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// A key needs TLS, except to this host.
    const fn protection<'a>(&self, authorities: Option<&'a Authorities>) -> Protection<'a> {
        match authorities {
            Some(authorities) => Protection::Tls(authorities),
            None if self.token_file.is_some() => Protection::Loopback,
            None => Protection::Plain,
        }
    }

    fn authorities(&self) -> Result<Option<Authorities>, Failure> {
        let Some(path) = &self.ca else {
            return Ok(None);
        };
        let pem = std::fs::read_to_string(path)
            .map_err(|error| Failure::file(path, SystemFault(&error)))?;
        let authorities = Authorities::from_pem(&pem);
        authorities
            .map(Some)
            .map_err(|error| Failure::file(path, error))
    }
}

/// Longest mail or value, bytes.
const BODY_BYTES_MAX: u64 = 64 << 10;

/// Reads a file, or stdin for a dash.
pub(super) fn read_body(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let most = BODY_BYTES_MAX.saturating_add(1);
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut body)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut body))
    };
    read.map_err(|error| Failure::file(path, SystemFault(&error)))?;
    if u64::try_from(body.len()).unwrap_or(u64::MAX) > BODY_BYTES_MAX {
        let sentence = format_args!("{}: {what} has at most 64 KiB", path.display());
        return Err(Failure::new(Exit::Usage, sentence));
    }
    Ok(body)
}

/// The request is about another hub (RFC 9110, section 15.5.20).
const MISDIRECTED: u16 = 421;

fn failure(http: &HostPort, answer: &Answer) -> Failure {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let status = answer.status;
    let Some(detail) = body.get("detail").and_then(Value::as_str) else {
        let mut failure = client::wrong_server(HUB, http);
        failure.sentence = format!("{failure}: {status}");
        return failure;
    };
    let exit = match status {
        // The request is not understood, for example by an older hub.
        400 | 405 => Exit::Usage,
        404 => Exit::CheckFailed,
        408 | 503 | 504 => Exit::TimedOut,
        _ => Exit::Refused,
    };
    Failure::new(exit, format_args!("{http}: {detail}"))
}

/// Prints bytes, and ends the last line.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let fail = |error| Failure::refused(format_args!("the answer cannot be written: {error}"));
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).map_err(fail)?;
    if !bytes.ends_with(b"\n") {
        out.write_all(b"\n").map_err(fail)?;
    }
    out.flush().map_err(fail)
}
