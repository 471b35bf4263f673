//! Header fields that several servers read.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use tokio::time::timeout;

use super::connections::Activity;
use super::error_response::ErrorResponse;

/// Returns the token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
///
/// The scheme is case-insensitive and may be followed by several spaces (RFC 9110, section 11.4).
/// Two such fields count as none.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let token = rest.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token68(token)).then_some(token)
}

/// Whether `text` is a `token68` (RFC 9110, section 11.2).
fn is_token68(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !body.is_empty() && body.bytes().all(is_allowed)
}

/// Whether the body's media type is `expected`; case and parameters are ignored (RFC 9110, section
/// 8.3.1).
pub(crate) fn has_media_type(headers: &HeaderMap, expected: &str) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let text = value.to_str().unwrap_or_default();
    let media = text.split_once(';').map_or(text, |(media, _)| media);
    media
        .trim_matches([' ', '\t'])
        .eq_ignore_ascii_case(expected)
}

/// Limits of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    /// Longest body, bytes; the same as that of the routes' `DefaultBodyLimit`.
    pub(crate) bytes_max: usize,
    /// Time until the whole body is received.
    pub(crate) timeout: Duration,
}

/// Receives the body of `request`, and marks its connection as busy.
pub(crate) async fn read_body(
    request: Request,
    limits: BodyLimits,
    activity: &Activity,
) -> Result<Bytes, ErrorResponse> {
    let body = timeout(limits.timeout, Bytes::from_request(request, &())).await;
    let body = body
        .map_err(|_| {
            ErrorResponse::new(
                StatusCode::REQUEST_TIMEOUT,
                "too_slow",
                "the body was not received in time",
            )
        })?
        .map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                let max = limits.bytes_max;
                ErrorResponse::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "body_too_large",
                    format!("the body is over {max} bytes"),
                )
            } else {
                ErrorResponse::bad("bad_body", "the body is incomplete")
            }
        })?;
    activity.busy();
    Ok(body)
}

/// Wraps `routes`: checks host and transfer codings, and normalizes the path.
pub(crate) fn normalized(routes: Router) -> Router {
    // A layer of `routes` itself would run after routing.
    Router::new()
        .fallback_service(routes)
        .layer(middleware::from_fn(normalize))
}

async fn normalize(mut request: Request, next: Next) -> Response {
    if !has_one_host(&request) {
        let detail =
            "an HTTP/1.1 request must have one Host field, with a host and an optional port";
        return ErrorResponse::bad("bad_host", detail).into_response();
    }
    if let Some(error_response) = encoding_fault(&request) {
        return error_response.into_response();
    }
    if let Some(uri) = with_normal_path(request.uri()) {
        *request.uri_mut() = uri;
    }
    next.run(request).await
}

/// RFC 9112, section 3.2: 400 for a request with no host, two hosts, or an invalid one.
fn has_one_host(request: &Request) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() < Version::HTTP_11,
        // A target without an authority has an empty host.
        (Some(host), None) => {
            host.is_empty() || Authority::try_from(host.as_bytes()).is_ok_and(|host| is_host(&host))
        }
        (Some(_), Some(_)) => false,
    }
}

/// RFC 9112, section 6.1: only `chunked`, once; 501 for other transfer codings.
fn encoding_fault(request: &Request) -> Option<ErrorResponse> {
    let fields = request.headers().get_all(header::TRANSFER_ENCODING);
    let codings: Vec<&[u8]> = fields
        .iter()
        .flat_map(|field| field.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty())
        .collect();
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if !codings.iter().all(is_chunked) {
        let detail = "the only supported transfer coding is chunked";
        return Some(ErrorResponse::new(
            StatusCode::NOT_IMPLEMENTED,
            "no_coding",
            detail,
        ));
    }
    let detail = "chunked must be applied once";
    (codings.len() > 1).then(|| ErrorResponse::bad("bad_coding", detail))
}

/// A host has no user information.
fn is_host(authority: &Authority) -> bool {
    !authority.as_str().contains('@')
}

/// Returns `uri` with a normalized path; `None` if it is normal.
///
/// RFC 3986, section 6.2.2: decodes percent-encoded letters, digits and `-._~`, and writes other
/// encodings in upper case. An encoded `/` stays encoded; a `%` without two digits stays as it is
/// and matches no route.
fn with_normal_path(uri: &Uri) -> Option<Uri> {
    let path = normal_path(uri.path())?;
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(whole).ok()?);
    Uri::from_parts(parts).ok()
}

fn normal_path(path: &str) -> Option<String> {
    if !path.contains('%') {
        return None;
    }
    let mut pieces = path.split('%');
    let mut normal = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let encoded = piece.split_at_checked(2).and_then(|(digits, rest)| {
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let byte = u8::from_str_radix(digits, 16).ok()?;
            is_hex.then(|| (digits.to_ascii_uppercase(), char::from(byte), rest))
        });
        match encoded {
            Some((_, letter, rest)) if is_unreserved(letter) => {
                normal.push(letter);
                normal.push_str(rest);
            }
            Some((digits, _, rest)) => {
                normal.push('%');
                normal.push_str(&digits);
                normal.push_str(rest);
            }
            None => {
                normal.push('%');
                normal.push_str(piece);
            }
        }
    }
    Some(normal)
}

/// RFC 3986, section 2.3.
const fn is_unreserved(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_' | '~')
}

/// Percent-encodes all characters of `text` that are not unreserved.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let letter = char::from(byte);
        if is_unreserved(letter) {
            encoded.push(letter);
        } else {
            encoded.push('%');
            let digits = [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
            encoded.extend(digits.iter().flatten().map(char::to_ascii_uppercase));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: &str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            // Field names are case-insensitive (RFC 9110, section 5.1).
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn rfc9110_the_bearer_scheme_ignores_case_and_extra_spaces() {
        for (name, text) in [
            ("Authorization", "Bearer aZ9-._~+/=="),
            ("authorization", "bearer aZ9-._~+/=="),
            ("AUTHORIZATION", "BEARER aZ9-._~+/=="),
            ("aUTHORIZATION", "bEaReR   aZ9-._~+/=="),
        ] {
            let headers = headers(name, &[text]);
            assert_eq!(bearer_token(&headers), Some("aZ9-._~+/=="), "{text}");
        }
        for text in [
            "",
            "Bearer",
            "Bearer ",
            "Basic abc",
            "Bearerabc",
            "abc",
            "Bearer a b",
            "Bearer a,b",
            "Bearer ==",
            "Bearer a=b",
            "Bearer \"abc\"",
            "Bearer\tabc",
        ] {
            let headers = headers("authorization", &[text]);
            assert_eq!(bearer_token(&headers), None, "{text}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
        let twice = headers("authorization", &["Bearer abc", "Bearer abc"]);
        assert_eq!(bearer_token(&twice), None);
    }

    #[test]
    fn rfc9110_media_types_ignore_case_and_parameters() {
        let is_json =
            |values: &[&str]| has_media_type(&headers("CONTENT-type", values), "application/json");
        for text in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"utf;8\"",
            "application/json \t; a=b",
        ] {
            assert!(is_json(&[text]), "{text}");
        }
        for text in ["", "text/json", "application/jsonx", "application/ json"] {
            assert!(!is_json(&[text]), "{text}");
        }
        assert!(!is_json(&[]));
        assert!(!is_json(&["application/json", "application/json"]));
    }

    #[test]
    fn rfc3986_paths_are_normalized() {
        for (path, normal) in [
            ("/v1/%74ickets", "/v1/tickets"),
            ("/v1/%54ickets", "/v1/Tickets"),
            ("/%76%31/tickets", "/v1/tickets"),
            ("/%41%5a%61%7A%30%39%2d%2E%5f%7e", "/AZaz09-._~"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb", "/a%2Fb"),
            ("/%e2%82%ac", "/%E2%82%AC"),
            ("/%00%ff", "/%00%FF"),
            ("/%2574", "/%2574"),
            ("/%zz", "/%zz"),
            ("/%+1", "/%+1"),
            ("/%7", "/%7"),
            ("/%", "/%"),
        ] {
            assert_eq!(normal_path(path).as_deref(), Some(normal), "{path}");
            // Normalizing is idempotent.
            let again = normal_path(normal);
            assert_eq!(again.as_deref().unwrap_or(normal), normal, "{path}");
        }
        assert_eq!(normal_path("/v1/tickets"), None);
        let uri: Uri = "HTTP://edge:80/%76?wait=%31".parse().unwrap();
        let normal = with_normal_path(&uri).unwrap();
        assert_eq!((normal.path(), normal.query()), ("/v", Some("wait=%31")));
    }

    #[test]
    fn percent_encoding_keeps_unreserved_characters() {
        assert_eq!(percent_encode("aZ0-._~"), "aZ0-._~");
        assert_eq!(percent_encode("a b/%\u{e4}+&"), "a%20b%2F%25%C3%A4%2B%26");
    }

    #[test]
    fn rfc9112_a_request_has_exactly_one_valid_host() {
        let has_one = |version: Version, hosts: &[&[u8]]| {
            let mut request = Request::builder().version(version).uri("/");
            for host in hosts {
                request = request.header("hOST", *host);
            }
            has_one_host(&request.body(Body::empty()).unwrap())
        };
        for host in [
            "edge",
            "edge:80",
            "EDGE.example",
            "192.0.2.1:80",
            "[::1]:80",
            "",
        ] {
            assert!(has_one(Version::HTTP_11, &[host.as_bytes()]), "{host}");
        }
        for host in ["a b", "a/b", "user@edge", "edge:80:80", "http://edge"] {
            assert!(!has_one(Version::HTTP_11, &[host.as_bytes()]), "{host}");
        }
        assert!(!has_one(Version::HTTP_11, &[]));
        assert!(!has_one(Version::HTTP_11, &[b"edge", b"edge"]));
        assert!(has_one(Version::HTTP_10, &[]));
    }
}
