//! The stream of one request, as the steps that all protocols share see it.

use super::Connection;
use crate::upstream::{Inbound, Interim, InterimReceiver};

/// The stream of one request whose head is complete.
///
/// It is used while the response is made. How the response is sent, and how the stream is reset, is the driver's own affair.
pub(crate) trait Stream {
    /// The connection below.
    fn connection(&self) -> &impl Connection;

    /// Whether content follows the head, and is not discarded.
    fn has_content(&self) -> bool;

    /// Whether the request asks for a tunnel by CONNECT with a protocol (RFC 8441, RFC 9220).
    fn is_connect(&self) -> bool;

    /// Whether the client understands interim responses (RFC 9110 §15.2).
    fn takes_interim(&self) -> bool;

    /// Sends an interim response before the response, at the latest when the driver next waits.
    fn interim(&mut self, interim: &Interim);

    /// Adds the parts of this stream that an upstream gets: the content of the request, and the news that the client left. `interims`: responses for
    /// [`Self::interim`], which the driver takes while the response is made.
    fn attach(&mut self, inbound: Inbound, awaited: Awaited, interims: Option<InterimReceiver>) -> Inbound;
}

/// The servers that a response may wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Awaited {
    #[default]
    None,
    /// A server that is asked whether the request may pass. The content of the request was read.
    Consent,
    /// A server that gets the request.
    Upstream,
}
