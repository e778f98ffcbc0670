//! A URL with a signature in its query (Signature Version 4). AWS's own crate signs; it has no client.

use super::keys::Keys;
use crate::Error;
use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign},
    sign::v4::SigningParams,
};
use http::Request;
use std::time::{Duration, UNIX_EPOCH};

/// What a signature is for.
pub(super) struct Signed<'a> {
    region: &'a str,
    service: &'a str,
    lifetime: Duration,
    body: SignableBody<'a>,
}

impl<'a> Signed<'a> {
    /// A request without a body.
    pub fn of(region: &'a str, service: &'a str, lifetime_seconds: u64) -> Self {
        let lifetime = Duration::from_secs(lifetime_seconds);
        Self { region, service, lifetime, body: SignableBody::empty() }
    }

    /// The URL of a GET request, with its signature.
    ///
    /// # Errors
    /// [`Error::Keys`].
    pub fn url(self, url: &str, keys: &Keys, now_ms: i64) -> Result<String, Error> {
        let failed =
            |reason: &dyn std::fmt::Display| Error::Keys { reason: format!("no signature: {reason}") };
        let since = Duration::from_millis(u64::try_from(now_ms).unwrap_or_default());
        let mut settings = SigningSettings::default();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(self.lifetime);
        let identity =
            Credentials::new(&*keys.id, &*keys.secret, keys.session.clone(), None, "sluice").into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name(self.service)
            .time(UNIX_EPOCH + since)
            .settings(settings)
            .build()
            .map_err(|error| failed(&error))?
            .into();
        let request = SignableRequest::new("GET", url, std::iter::empty(), self.body)
            .map_err(|error| failed(&error))?;
        let (instructions, _) = sign(request, &params).map_err(|error| failed(&error))?.into_parts();
        let mut signed = Request::get(url).body(()).map_err(|error| failed(&error))?;
        instructions.apply_to_request_http1x(&mut signed);
        Ok(signed.uri().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(url: &str) -> &str {
        let mut pairs = url.split(['?', '&']);
        pairs.find_map(|pair| pair.strip_prefix("X-Amz-Signature=")).unwrap()
    }

    fn keys(id: &str, secret: &str, session: Option<&str>) -> Keys {
        Keys::new(id.into(), secret.into(), session.map(str::to_owned), None).unwrap()
    }

    /// The test suite that AWS publishes for Signature Version 4 (awslabs/aws-c-auth, tests/aws-signing-test-suite/v4, query-signed-request).
    #[test]
    fn signatures_are_those_of_the_test_suite_of_aws() {
        // 2015-08-30, 12:36 UTC.
        let at = 1_440_938_160_000;
        let session = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
        for (name, url, session, expected) in [
            (
                "get-vanilla-query-order-key-case",
                "https://example.amazonaws.com/?Param2=value2&Param1=value1",
                None,
                "86012e2c9ad4d77369f5d81c11f75158aae4f895a085212cc6d3f923d300bed5",
            ),
            (
                "get-vanilla-with-session-token",
                "https://example.amazonaws.com/",
                Some(session),
                "7ff2b50b376cb4d151970630573d6291dc128cc5c2a12ffb237f73cc53f67b6c",
            ),
        ] {
            let keys = keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session);
            let signed = Signed::of("us-east-1", "service", 3_600).url(url, &keys, at).unwrap();
            assert_eq!(signature(&signed), expected, "{name}");
            assert!(signed.contains("X-Amz-Date=20150830T123600Z&X-Amz-Expires=3600"), "{signed}");
        }
    }

    /// The example of a presigned URL in the reference of Amazon S3 ("Authenticating Requests: Using Query Parameters").
    #[test]
    fn the_signature_is_that_of_the_documented_presigned_url() {
        let keys = keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None);
        let of_s3 = Signed { body: SignableBody::UnsignedPayload, ..Signed::of("us-east-1", "s3", 86_400) };
        // 2013-05-24, 00:00 UTC.
        let signed =
            of_s3.url("https://examplebucket.s3.amazonaws.com/test.txt", &keys, 1_369_353_600_000).unwrap();
        assert_eq!(signature(&signed), "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    }

    #[test]
    fn a_url_that_is_none_is_an_error_without_a_key() {
        let found = Signed::of("us-east-1", "s", 1).url("no url", &keys("AKID", "s3cret", None), 0);
        let said = found.unwrap_err().to_string();
        assert!(said.contains("no signature") && !said.contains("s3cret"), "{said}");
    }
}
