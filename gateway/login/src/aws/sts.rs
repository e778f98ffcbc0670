//! Keys of a role for a token of the ServiceAccount: `AssumeRoleWithWebIdentity` of AWS STS. The request needs no signature: the token proves it.
//!
//! Its answer is a short XML document with one element for each value. Only these elements are looked for, so there is no parser.

use super::keys::Keys;
use crate::{
    Error,
    answer::{Answer, is_code, told},
    http_client::{self, FORM, Server},
};
use bytes::Bytes;
use form_urlencoded::Serializer;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use jiff::Timestamp;

/// The version of the interface, which has had no other since.
const VERSION: &str = "2011-06-15";

/// How long the keys live, in seconds: the shortest that there is. They sign one token, which lives no longer.
const LIFETIME_SECONDS: &str = "900";

/// What a person checks after a refusal.
const CHECK: &str = "that the role of AWS_ROLE_ARN is there, and that its trust policy names the cluster's issuer and this ServiceAccount";

/// Who asks for which role.
pub(super) struct Question<'a> {
    pub role: &'a str,
    pub session: &'a str,
    pub token: &'a str,
}

/// Asks for keys.
///
/// # Errors
/// [`Error`], without the token.
pub(super) async fn keys(endpoint: &str, question: &Question<'_>) -> Result<Keys, Error> {
    let request = request(endpoint, question)?;
    let answer = http_client::ask((Server::AwsSts, endpoint), request, None).await?;
    granted(endpoint, &answer, question.token)
}

fn request(endpoint: &str, question: &Question<'_>) -> Result<Request<Full<Bytes>>, Error> {
    let mut form = Serializer::new(String::new());
    form.append_pair("Action", "AssumeRoleWithWebIdentity")
        .append_pair("Version", VERSION)
        .append_pair("DurationSeconds", LIFETIME_SECONDS)
        .append_pair("RoleArn", question.role)
        .append_pair("RoleSessionName", question.session)
        .append_pair("WebIdentityToken", question.token);
    let mut request = Request::new(Full::new(Bytes::from(form.finish())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http_client::url(Server::AwsSts, endpoint)?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM));
    Ok(request)
}

fn granted(endpoint: &str, answer: &Answer, token: &str) -> Result<Keys, Error> {
    let server = Server::AwsSts;
    let endpoint = endpoint.to_owned();
    let text = std::str::from_utf8(&answer.body).unwrap_or_default();
    if !answer.is_grant() {
        let said = refusal(text, token);
        return Err(Error::Refused { server, endpoint, status: answer.status, said, check: CHECK });
    }
    let found = || {
        let value = |name: &str| element(text, name).ok_or_else(|| format!("it has no {name}"));
        let expires: Timestamp =
            value("Expiration")?.parse().map_err(|_| "its Expiration is no time".to_owned())?;
        let texts = (value("AccessKeyId")?, value("SecretAccessKey")?, value("SessionToken")?);
        Keys::new(
            texts.0.to_owned(),
            texts.1.to_owned(),
            Some(texts.2.to_owned()),
            Some(expires.as_millisecond()),
        )
    };
    found().map_err(|reason| Error::Nonsense { server, endpoint, bytes: answer.body.len(), reason })
}

/// The code of a refusal and the first sentence of its message; of anything else nothing is shown.
fn refusal(text: &str, token: &str) -> String {
    let code = element(text, "Code").filter(|code| text.contains("<ErrorResponse") && is_code(code));
    let Some(code) = code else { return "no error of AWS STS".to_owned() };
    let message = element(text, "Message").unwrap_or_default();
    told(code.to_owned(), message.to_owned(), &[token])
}

/// The text of the first element of this name that has neither elements nor references.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim()).filter(|text| !text.contains(['<', '&']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    /// As the reference of AWS STS shows it.
    const GRANTED: &str = r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult>
    <SubjectFromWebIdentityToken>system:serviceaccount:tracing:traces-gateway</SubjectFromWebIdentityToken>
    <AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/sluice</Arn><AssumedRoleId>A:sluice</AssumedRoleId></AssumedRoleUser>
    <Credentials>
      <SessionToken>AQoDYXdzEE0a8ANXXXXXXXX/+=</SessionToken>
      <SecretAccessKey>wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY</SecretAccessKey>
      <Expiration>2026-11-28T06:15:00Z</Expiration>
      <AccessKeyId>ASgeIAIOSFODNN7EXAMPLE</AccessKeyId>
    </Credentials>
  </AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"#;

    fn of(status: u16, body: &str) -> Result<Keys, String> {
        let answer = Answer { status, body: body.as_bytes().to_vec() };
        granted("https://sts", &answer, "t0ken").map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_token_is_sent_in_the_body_and_asks_for_a_role() {
        let question = Question { role: "arn:aws:iam::1:role/r", session: "sluice", token: "a.b-c" };
        let request = request("https://sts.eu-central-1.amazonaws.com/", &question).unwrap();
        assert_eq!((request.method(), request.uri().query()), (&Method::POST, None));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            body,
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&DurationSeconds=900&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr\
             &RoleSessionName=sluice&WebIdentityToken=a.b-c"
        );
    }

    #[test]
    fn an_answer_has_keys_and_until_when_they_hold() {
        let keys = of(200, GRANTED).ok().unwrap();
        assert_eq!(keys.id, "ASgeIAIOSFODNN7EXAMPLE");
        assert_eq!(keys.secret, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY");
        assert_eq!(keys.session.as_deref(), Some("AQoDYXdzEE0a8ANXXXXXXXX/+="));
        assert_eq!(keys.expires_ms, Some(1_795_846_500_000));
    }

    #[test]
    fn a_refusal_is_told_with_its_code_and_first_sentence_and_without_the_token() {
        let refused = |code: &str, message: &str| {
            format!(
                "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>{code}</Code>\
                 <Message>{message}</Message></Error><RequestId>0a-1</RequestId></ErrorResponse>"
            )
        };
        for (body, expected) in [
            (
                refused("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity"),
                "answered 403: AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity; check that the role",
            ),
            (refused("InvalidIdentityToken", "Wrong t0ken. More"), "InvalidIdentityToken: Wrong …; check"),
            (refused("ExpiredToken", "a &lt;b&gt;"), "answered 403: ExpiredToken; check"),
            (refused("not a code", "a"), "answered 403: no error of AWS STS; check"),
            ("<html><Code>a</Code>internal</html>".into(), "answered 403: no error of AWS STS; check"),
            (String::new(), "answered 403: no error of AWS STS; check"),
        ] {
            let said = of(403, &body).err().unwrap();
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains("t0ken") && !said.contains("internal"), "{said}");
        }
    }

    #[test]
    fn nonsense_is_told_by_its_length_and_never_repeated() {
        let without = |part: &str| GRANTED.replace(part, "x");
        for (body, reason) in [
            (String::new(), "it has no Expiration"),
            ("<html>".into(), "it has no Expiration"),
            (without("2026-11-28T06:15:00Z"), "its Expiration is no time"),
            (without("AccessKeyId"), "it has no AccessKeyId"),
            (without("</SecretAccessKey>"), "it has no SecretAccessKey"),
            (GRANTED.replace("AQoD", "&amp;"), "it has no SessionToken"),
            (
                without("wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY").replace("Key>x<", "Key> <"),
                "secret access key is empty",
            ),
        ] {
            let said = of(200, &body).err().unwrap();
            assert!(said.contains(reason) && !said.contains("wJal"), "{said}");
            assert!(said.contains(&format!("answered {} bytes without usable keys", body.len())), "{said}");
        }
        let bytes = Answer { status: 200, body: vec![0xff, 0xfe] };
        assert!(granted("https://sts", &bytes, "t").is_err());
    }
}
