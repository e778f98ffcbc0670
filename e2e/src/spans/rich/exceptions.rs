//! The exceptions of the `rich` shape.
//!
//! Job: two exceptions with their stack text; which one a failed span has is drawn. Place in the flow: read by `rich`.

/// An exception as an event carries it.
#[derive(Clone, Copy)]
pub(super) struct Exception {
    /// `exception.type`.
    pub(super) kind: &'static str,
    /// `exception.message`.
    pub(super) message: &'static str,
    /// `exception.stacktrace`.
    pub(super) stack: &'static str,
}

/// Exceptions to choose from.
pub(super) static EXCEPTIONS: [Exception; 2] = [
    Exception {
        kind: "java.net.SocketTimeoutException",
        message: "Read timed out after 5000 ms from payment.shop.svc:8443",
        stack: "java.net.SocketTimeoutException: Read timed out\n\
            \tat java.base/sun.nio.ch.NioSocketImpl.timedRead(NioSocketImpl.java:288)\n\
            \tat java.base/sun.nio.ch.NioSocketImpl.implRead(NioSocketImpl.java:314)\n\
            \tat java.base/java.net.Socket$SocketInputStream.read(Socket.java:1099)\n\
            \tat okio.InputStreamSource.read(JvmOkio.kt:93)\n\
            \tat okhttp3.internal.http1.Http1ExchangeCodec.readResponseHeaders(Http1ExchangeCodec.kt:178)\n\
            \tat com.shop.payment.PaymentClient.charge(PaymentClient.java:141)\n\
            \tat com.shop.checkout.CheckoutService.place(CheckoutService.java:87)\n",
    },
    Exception {
        kind: "org.postgresql.util.PSQLException",
        message: "ERROR: deadlock detected",
        stack: "org.postgresql.util.PSQLException: ERROR: deadlock detected\n\
            \tat org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:2733)\n\
            \tat org.postgresql.core.v3.QueryExecutorImpl.processResults(QueryExecutorImpl.java:2420)\n\
            \tat org.postgresql.jdbc.PgPreparedStatement.executeUpdate(PgPreparedStatement.java:152)\n\
            \tat com.zaxxer.hikari.pool.ProxyPreparedStatement.executeUpdate(ProxyPreparedStatement.java:61)\n\
            \tat com.shop.inventory.InventoryDao.reserve(InventoryDao.java:203)\n",
    },
];
