//! Attributes by the semantic conventions: what each kind of operation carries, and how a value is made.
//!
//! Job: the tables behind the `rich` shape. Place in the flow: read by `rich` for every span. Limits: a text value is at
//! most [`TEXT_BYTES_MAX`] bytes and is built on the stack. Names: <https://opentelemetry.io/docs/specs/semconv/>.
//!
//! Cardinality as in real services: ids, paths, addresses and statements differ from span to span; routes, methods,
//! tables and hosts come from short lists.

use super::super::dice::Dice;

/// Longest text value, bytes: the longest template (a statement with an id) is under 160.
const TEXT_BYTES_MAX: usize = 192;

/// A kind of operation.
#[derive(Debug)]
pub(super) struct Operation {
    /// `SpanKind` on the wire.
    pub(super) kind: u64,
    /// Span names to choose from.
    pub(super) names: &'static [&'static str],
    /// Attributes, the usual ones first: a span has the first four to nine.
    pub(super) attributes: [(&'static str, Make); 9],
}

/// How a value is made.
#[derive(Debug)]
pub(super) enum Make {
    /// The same text always.
    Always(&'static str),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A text with an id in the middle.
    Around(&'static str, Id, &'static str),
    /// An int below the bound.
    Below(u64),
    /// One of these ints.
    OneInt(&'static [i64]),
    /// True in so many of 1,000.
    Chance(u64),
}

/// An id inside a text.
#[derive(Debug)]
pub(super) enum Id {
    /// A decimal number below the bound.
    Number(u64),
    /// A UUID.
    Uuid,
    /// An address in 10.0.0.0/8.
    Address,
}

/// What [`Make::make`] made; a text is in the buffer that it was given.
pub(super) enum Made {
    Text,
    Int(i64),
    Bool(bool),
}

/// A text on the stack.
pub(super) struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; TEXT_BYTES_MAX], length: 0 }
    }
}

impl Text {
    /// The text so far.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("only whole texts and ASCII digits are pushed")
    }

    fn push(&mut self, text: &str) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
    }

    fn push_byte(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.push_byte(b'0' + (number % 10).to_le_bytes()[0]);
    }

    /// A UUID of version 4's length, hyphens where they belong.
    pub(super) fn uuid(&mut self, dice: &mut Dice) {
        let (mut bits, mut left) = (0, 0);
        for position in 0..36 {
            if matches!(position, 8 | 13 | 18 | 23) {
                self.push_byte(b'-');
                continue;
            }
            if left == 0 {
                (bits, left) = (dice.roll(), 16);
            }
            self.push_byte(b"0123456789abcdef"[usize::from(bits.to_le_bytes()[0] & 15)]);
            bits >>= 4;
            left -= 1;
        }
    }

    fn address(&mut self, dice: &mut Dice) {
        self.push("10.128.");
        self.number(dice.below(16));
        self.push(".");
        self.number(dice.below(256));
    }
}

impl Make {
    /// Makes a value; a text goes into `text`, which is empty.
    pub(super) fn make(&self, dice: &mut Dice, text: &mut Text) -> Made {
        match self {
            Make::Always(always) => text.push(always),
            Make::OneOf(choices) => text.push(dice.pick(choices)),
            Make::Around(before, id, after) => {
                text.push(before);
                id.push_to(dice, text);
                text.push(after);
            }
            Make::Below(bound) => return Made::Int(dice.below(*bound).cast_signed()),
            Make::OneInt(choices) => return Made::Int(dice.pick(choices)),
            Make::Chance(per_mille) => return Made::Bool(dice.chance(*per_mille)),
        }
        Made::Text
    }
}

impl Id {
    fn push_to(&self, dice: &mut Dice, text: &mut Text) {
        match self {
            Id::Number(bound) => text.number(dice.below(*bound)),
            Id::Uuid => text.uuid(dice),
            Id::Address => text.address(dice),
        }
    }
}

const STATUS_CODES: Make = Make::OneInt(&[200, 200, 200, 200, 200, 201, 204, 304, 400, 404, 500, 503]);
const METHODS: Make = Make::OneOf(&["GET", "GET", "GET", "POST", "PUT", "DELETE"]);
const HOSTS: Make = Make::OneOf(&[
    "cart.shop.svc.cluster.local",
    "payment.shop.svc.cluster.local",
    "identity.shop.svc.cluster.local",
]);

/// The kinds of operation, as often as they are listed.
pub(super) static OPERATIONS: [&Operation; 8] =
    [&HTTP_SERVER, &HTTP_CLIENT, &DATABASE, &DATABASE, &RPC, &MESSAGING, &INTERNAL, &HTTP_SERVER];

static HTTP_SERVER: Operation = Operation {
    kind: 2,
    names: &[
        "GET /api/v1/carts/{cartId}",
        "POST /api/v1/orders",
        "GET /api/v1/products/{id}",
        "GET /healthz",
    ],
    attributes: [
        ("http.request.method", METHODS),
        ("http.route", Make::OneOf(&["/api/v1/carts/{cartId}", "/api/v1/orders", "/api/v1/products/{id}"])),
        ("http.response.status_code", STATUS_CODES),
        ("url.path", Make::Around("/api/v1/customers/self/carts/open/", Id::Number(200_000), "/items")),
        ("client.address", Make::Around("", Id::Address, "")),
        ("url.scheme", Make::Always("https")),
        (
            "user_agent.original",
            Make::Around(
                "Mozilla/5.0 (X11; Linux x86_64; rv:",
                Id::Number(140),
                ".0) Gecko/20100101 Firefox",
            ),
        ),
        ("server.port", Make::OneInt(&[8080, 8443])),
        ("enduser.authenticated", Make::Chance(700)),
    ],
};

static HTTP_CLIENT: Operation = Operation {
    kind: 3,
    names: &["GET payment.shop.svc", "POST payment.shop.svc", "PUT cart.shop.svc"],
    attributes: [
        ("http.request.method", METHODS),
        (
            "url.full",
            Make::Around(
                "https://payment.shop.svc:8443/api/v2/charges/",
                Id::Number(200_000),
                "?expand=card,customer,refunds&limit=10",
            ),
        ),
        ("http.response.status_code", STATUS_CODES),
        ("server.address", HOSTS),
        ("server.port", Make::OneInt(&[8080, 8443])),
        ("network.peer.address", Make::Around("", Id::Address, "")),
        ("network.protocol.version", Make::OneOf(&["1.1", "2"])),
        ("http.request.resend_count", Make::Below(3)),
        ("tls.resumed", Make::Chance(800)),
    ],
};

static DATABASE: Operation = Operation {
    kind: 3,
    names: &[
        "SELECT shop.orders",
        "INSERT shop.order_items",
        "UPDATE shop.inventory",
        "SELECT shop.customers",
    ],
    attributes: [
        ("db.system.name", Make::OneOf(&["postgresql", "postgresql", "redis"])),
        (
            "db.query.text",
            Make::Around(
                "SELECT o.id, o.total, o.currency, o.created_at FROM orders o WHERE o.customer_id = ",
                Id::Number(5_000_000),
                " ORDER BY o.created_at DESC LIMIT 50",
            ),
        ),
        ("db.namespace", Make::Always("shop")),
        ("db.operation.name", Make::OneOf(&["SELECT", "INSERT", "UPDATE"])),
        ("server.address", Make::Around("pg-", Id::Number(6), ".db.shop.svc.cluster.local")),
        ("db.collection.name", Make::OneOf(&["orders", "order_items", "inventory", "customers"])),
        ("db.response.returned_rows", Make::Below(50)),
        ("server.port", Make::OneInt(&[5432, 6379])),
        ("db.pool.reused", Make::Chance(950)),
    ],
};

static RPC: Operation = Operation {
    kind: 2,
    names: &["shop.v1.Pricing/Quote", "shop.v1.Inventory/Reserve", "shop.v1.Fraud/Score"],
    attributes: [
        ("rpc.system", Make::Always("grpc")),
        (
            "rpc.service",
            Make::OneOf(&[
                "shop.pricing.v1.PricingService",
                "shop.inventory.v1.InventoryService",
                "shop.fraud.v1.FraudService",
            ]),
        ),
        ("rpc.method", Make::OneOf(&["Quote", "Reserve", "Score"])),
        ("rpc.grpc.status_code", Make::OneInt(&[0, 0, 0, 0, 4, 14])),
        ("server.address", HOSTS),
        ("rpc.request.metadata.request_id", Make::Around("req-eu-central-1-", Id::Number(2_000_000), "")),
        ("network.peer.address", Make::Around("", Id::Address, "")),
        ("network.peer.port", Make::Below(65_536)),
        ("rpc.retried", Make::Chance(20)),
    ],
};

static MESSAGING: Operation = Operation {
    kind: 5,
    names: &["process shop.orders", "publish shop.orders", "process shop.emails"],
    attributes: [
        ("messaging.system", Make::Always("kafka")),
        (
            "messaging.destination.name",
            Make::OneOf(&["shop.orders.created.v1", "shop.emails.requested.v1", "shop.invoices.sent.v1"]),
        ),
        ("messaging.operation.type", Make::OneOf(&["process", "send"])),
        ("messaging.message.id", Make::Around("", Id::Uuid, "")),
        ("messaging.kafka.offset", Make::Below(400_000_000)),
        ("messaging.destination.partition.id", Make::Around("", Id::Number(96), "")),
        ("messaging.consumer.group.name", Make::Always("order-processor")),
        ("messaging.message.body.size", Make::Below(16_384)),
        ("messaging.redelivered", Make::Chance(10)),
    ],
};

static INTERNAL: Operation = Operation {
    kind: 1,
    names: &["CartService.recalculate", "OrderService.place", "TaxRules.evaluate", "TemplateEngine.render"],
    attributes: [
        (
            "code.function.name",
            Make::OneOf(&["com.shop.cart.CartService.recalculate", "com.shop.tax.TaxRules.evaluate"]),
        ),
        ("thread.name", Make::Around("http-nio-8080-exec-pool-1-thread-", Id::Number(64), "")),
        ("thread.id", Make::Below(512)),
        ("enduser.id", Make::Around("user-", Id::Number(2_000_000), "")),
        ("session.id", Make::Around("session-eu-central-1-", Id::Number(50_000), "")),
        (
            "code.file.path",
            Make::OneOf(&["src/main/java/com/shop/cart/CartService.java", "src/main/java/com/shop/Tax.java"]),
        ),
        ("code.line.number", Make::Below(900)),
        ("feature.flag.variant", Make::OneOf(&["control", "treatment"])),
        ("cache.hit", Make::Chance(850)),
    ],
};

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
